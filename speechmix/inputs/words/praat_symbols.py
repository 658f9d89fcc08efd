"""Praat's backslash symbols: how Praat writes letters that a keyboard lacks in plain text.

In: a label such as ``\\sw`` or ``\\e't\\e'``. Out: ə, été. The table is that of Praat's manual ("Special
symbols", "Phonetic symbols"), but for Hebrew: the two characters behind the backslash, then the symbol.
"""

from __future__ import annotations

import re
import unicodedata

_SYMBOLS = r"""
    '1ˈ '2ˌ .fˑ 9-ʢ 9eʕ :fː ?-ʡ ?gʔ G^ʛ O.ʘ Oeɶ ^9ˁ ^?ˀ ^Gᶭ ^Hʱ ^Mᵚ ^Nᵑ ^Yᶣ ^fᶠ ^gˠ ^hʰ ^jʲ ^lˡ
    ^mᵐ ^nⁿ ^sˢ ^wʷ ^xˣ ^yʸ abɒ aeæ apʼ asɑ atɐ ayɒ b^ɓ bcʙ beβ bfβ c,ç ccɕ cfχ ciχ ctɔ d.ɖ d^ɗ
    dhð e-ɘ efɛ erɜ f.ɽ ffɸ fhɾ g^ɠ gcɢ gfɣ gsɡ h-ħ h^ɦ hcʜ hjɧ hr˞ hsʊ htɥ i-ɨ icɪ idɿ irʅ j-ɟ
    j^ʄ jcʝ kbɞ l-ɬ l.ɭ lcʟ lzɮ l~ɫ mjɱ mlɰ mtɯ n.ɳ ncɴ ngŋ njɲ o-ɵ o/ø oeœ r.ɻ rcʀ rhɤ riʁ rlɺ
    rtɹ s.ʂ shʃ srɚ swə t.ʈ tSʧ teθ tfθ tsʦ u-ʉ vsʋ vtʌ wtʍ ycʏ ytʎ z.ʐ zcʑ zhʒ
    A"Ä A'Á A;Ą A^Â A`À AeÆ AlΑ AoÅ A~Ã BeΒ C'Ć C,Ç C<Č CiΧ D-Đ D<Ď DeΔ E"Ë E'É E;Ę E<Ě E^Ê E`È
    EpΕ EtΗ FIﬁ FLﬂ FiΦ G<Ǧ GaΓ I"Ï I'Í I^Î I`Ì IoΙ KaΚ L/Ł LaΛ MuΜ N'Ń N<Ň NuΝ N~Ñ O"Ö O'Ó O/Ø
    O:Ő O^Ô O`Ò OmΩ OnΟ O~Õ PiΠ PsΨ R<Ř RoΡ S'Ś S<Š SiΣ T<Ť TaΤ TeΘ ThÞ U"Ü U'Ú U:Ű U^Û U`Ù UoŮ
    UpΥ XiΞ Y"Ÿ Y'Ý Z!Ż Z'Ź Z<Ž ZeΖ a"ä a'á a;ą a^â a_ª a`à alα aoå a~ã c'ć c<č d-đ d<ď deδ e"ë
    e'é e;ę e<ě e^ê e`è epε etη f2ϕ fdƒ fiφ g<ǧ gaγ i"ï i'í i^î i`ì ioι kaκ l/ł laλ muμ n'ń n<ň
    nuν n~ñ o"ö o'ó o2ϖ o:ő o^ô o_º o`ò omω onο o~õ piπ psψ r<ř roρ s'ś s2ς s<š sUוּ siσ ssß t2ϑ
    t<ť taτ thþ u"ü u'ú u:ű u^û u`ù uoů upυ vOוֹ xiξ y"ÿ y'ý z!ż z'ź z<ž zeζ |-ǂ |1ǀ |2ǁ
    !d¡ "l“ "p″ "r” 'a' 'p′ +-± --– ->→ -m− ..⋯ .3∴ .c· /d∕ :-÷ <-← <<« <=⇐ <>↔ <_≤ =/≠ =3≡ =>⇒
    =~≅ >>» >_≥ ?d¿ At∀ Er∃ Lp£ O|∅ SS§ TM™ Tt⊥ Vr√ Y=¥ [f[ ]f] ^#⇑ ^|↑ _#⇓ _u‿ _|↓ an∧ bs\ bu•
    c/¢ c=⊂ cl♣ co© cu¤ dd∂ dg° di♦ e=∈ eq⇔ eu€ f5❀ he♥ in∫ ni∩ no¬ o+⊕ oc∝ oo∞ or∨ ox⊗ pf☞ re®
    sp♠ su∑ tm™ un_ uu∪ xx× |f| ||¶ ~~≈
"""
_COMBINING = r"""
    '^0301 +v031F -^0304 -h00AD -v0320 0^030A 0v0325 3v0339 :^0308 :v0324 Dv033B N^0306 Nv032A
    T(0318 T)0319 T^031D Tv031E Uv033A ^^0302 `^0300 cn031A cv031C li0361 nv032F v^030C x^033D
    |v0329 ~<0334 ~^0303 ~v0330
"""
_SYMBOL_BY_CODE = {entry[:2]: entry[2:] for entry in _SYMBOLS.split()}
_SYMBOL_BY_CODE |= {entry[:2]: chr(int(entry[2:], 16)) for entry in _COMBINING.split()}
_CODE = re.compile(r"\\(..)")


def decode_praat_symbols(label: str) -> str:
    r"""The label with Praat's backslash symbols as the letters they stand for (NFC); unknown ones stay.

    Examples
    --------
    >>> decode_praat_symbols(r"ma\i^tre"), decode_praat_symbols(r"\ct\~^"), decode_praat_symbols(r"r\`")
    ('maître', 'ɔ̃', 'r\\`')
    """
    if "\\" not in label:
        return label
    decoded = _CODE.sub(lambda match: _SYMBOL_BY_CODE.get(match[1], match[0]), label)
    return unicodedata.normalize("NFC", decoded)


def has_praat_symbol(label: str) -> bool:
    r"""Whether a label has a backslash symbol of Praat.

    Examples
    --------
    >>> has_praat_symbol(r"\sw"), has_praat_symbol(r"r\`")
    (True, False)
    """
    return any(match[1] in _SYMBOL_BY_CODE for match in _CODE.finditer(label))
