"""Labels of phones in IPA, from whatever alphabet a file has.

In: the labels of a tier. Out: IPA, and the file's own label where it differs. The alphabet is the one
that is named, else the only one that all labels fit; which one that is, is said. A tier whose labels
fit none is refused. An ASCII tier of plain small letters is read alike as IPA and as X-SAMPA.

Alphabets of phone labels, each with what turns a label into IPA.

In: a label. Out: IPA, or "" where the alphabet has no such label. ARPABET is that of CMU's dictionary,
with or without stress (``AH0``), and in small letters that of TIMIT and Buckeye (``ah``, closures
``bcl``, nasal vowels ``ahn``). X-SAMPA is read by PanPhon's table (extra `phones`). A label of IPA, X-SAMPA
or Praat is of one phone: most small letters are signs of each, so that signs alone do not tell a phone
from a word.

Praat's backslash symbols: how Praat writes letters that a keyboard lacks in plain text.

In: a label such as ``\\sw`` or ``\\e't\\e'``. Out: ə, été. The table is that of Praat's manual ("Special
symbols", "Phonetic symbols"), but for Hebrew: the two characters behind the backslash, then the symbol.

Classes and features of phones, by their IPA labels (PanPhon's table, extra `phones`).

In: an IPA label as aligners write it, with stress marks, length, diacritics, a diphthong or an
affricate without a tie bar. Out: its class of manner, or its features. PanPhon's features do not tell trills and
taps from approximants, and call the glottal fricatives sonorants; `_CLASS_BY_BASE` has these.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...errors import InputError, MissingExtraError, install_command
from .timed_words import Word
from .unit_tiers import PHONE
from .word_checks import is_non_unit

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


IPA, ARPABET, X_SAMPA, PRAAT = "ipa", "arpabet", "x-sampa", "praat"

_ARPABET = dict(
    part.split("=")
    for part in """
    AA=ɑ AE=æ AH=ʌ AH0=ə AO=ɔ AW=aʊ AX=ə AX-H=ə̥ AXR=ɚ AY=aɪ EH=ɛ ER=ɝ ER0=ɚ EY=eɪ IH=ɪ IX=ɨ IY=i OW=oʊ
    OY=ɔɪ UH=ʊ UW=u UX=ʉ B=b BCL=b̚ CH=tʃ D=d DCL=d̚ DH=ð DX=ɾ EL=l̩ EM=m̩ EN=n̩ ENG=ŋ̍ F=f G=ɡ GCL=ɡ̚ HH=h
    HV=ɦ JH=dʒ K=k KCL=k̚ L=l M=m N=n NG=ŋ NX=ɾ̃ P=p PCL=p̚ Q=ʔ R=ɹ S=s SH=ʃ T=t TCL=t̚ TH=θ TQ=ʔ V=v W=w
    WH=ʍ Y=j Z=z ZH=ʒ
    AAN=ɑ̃ AEN=æ̃ AHN=ʌ̃ AON=ɔ̃ AWN=ãʊ̃ AYN=ãɪ̃ EHN=ɛ̃ ERN=ɝ̃ EYN=ẽɪ̃ IHN=ɪ̃ IYN=ĩ OWN=õʊ̃ OYN=ɔ̃ɪ̃ UHN=ʊ̃ UWN=ũ""".split()
)
# Of X-SAMPA (Wells 1995), what PanPhon's table lacks or has otherwise: contour tones, steps, global pitch, the
# Swedish fricative, the linking mark.
_OTHER_X_SAMPA = {
    "_R": "\u030c",
    "_/": "\u030c",
    "_F": "\u0302",
    "_\\": "\u0302",
    "!": "ꜜ",
    "^": "ꜛ",
    "<R>": "↗",
    "<F>": "↘",
    "x\\": "ɧ",
    "-\\": "‿",
}
# Letters of the IPA beside a to z: those in Latin-1 and Greek, the blocks of IPA extensions, modifier
# letters, combining marks and phonetic extensions, clicks, and signs between and behind letters.
_IPA_LETTERS = "a-zæçðøħŋœβθχⱱǀ-ǃⁿ\u0250-\u02ff\u0300-\u036f\u1d00-\u1dbf"
_IPA_SIGNS = ".:'’‖‿|↓↑↗↘¹²³⁴⁵⁰-"
_IPA_LABEL = re.compile(
    f"[{_IPA_LETTERS}{re.escape(_IPA_SIGNS)}]*[{_IPA_LETTERS}]"
    f"[{_IPA_LETTERS}{re.escape(_IPA_SIGNS)}]*([1-5]{{2,3}})?"  # one digit would be stress: of ARPABET
)
_VOWELS = "aeiouyæœøɶɐɑɒɔɘəɚɛɜɝɞɤɨɪɩɯɷʉʊʏʌɿʅʮʯᴇᵻᵿ"
_GLIDES = "jwɥɰ"
# A consonant, long or an affricate, with a nasal before it; or up to three vowels with glides, and the r, l
# or nasal that is one phone with them, as espeak-ng has it. Letters without their diacritics.
_ONE_PHONE = re.compile(
    f"[^{_VOWELS}]{{0,3}}|(?=.{{1,5}}$)[{_GLIDES}]?[{_VOWELS}{_GLIDES}]{{1,3}}([nŋ]ɡ|[lɫɭrɹɾɻʀʁmnɲŋ])?"
)


def arpabet_to_ipa(label: str) -> str:
    """IPA of an ARPABET label in capitals or in small letters; "" for anything else.

    Examples
    --------
    >>> arpabet_to_ipa("AH0"), arpabet_to_ipa("axr"), arpabet_to_ipa("Ah"), arpabet_to_ipa("a")
    ('ə', 'ɚ', '', '')
    """
    if not (label.isupper() or label.islower()):
        return ""
    label = label.upper()
    return _ARPABET.get(label) or _ARPABET.get(re.sub("[012]$", "", label), "")


def ipa_to_ipa(label: str) -> str:
    """The label, if it may be one phone in IPA, with tones as digits behind it; else "".

    Examples
    --------
    >>> ipa_to_ipa("tʃʰ"), ipa_to_ipa("ɑ̃"), ipa_to_ipa("a55"), ipa_to_ipa("aɪ1"), ipa_to_ipa("cat")
    ('tʃʰ', 'ɑ̃', 'a55', '', '')
    """
    is_ipa = _IPA_LABEL.fullmatch(unicodedata.normalize("NFD", label)) is not None
    return label if is_ipa and _is_one_phone(label) else ""


def praat_to_ipa(label: str) -> str:
    """IPA of a label with Praat's backslash symbols; "" if there are letters that are none."""
    return ipa_to_ipa(decode_praat_symbols(label))


def xsampa_to_ipa(label: str) -> str:
    """IPA of an X-SAMPA label by PanPhon's table; "" if a sign in it is not in the table, or it is of
    several phones.

    PanPhon's own function leaves such signs out in silence, and its table lacks some of X-SAMPA.
    """
    table, ipa, rest = xsampa_table(), "", label
    while rest:
        match = table.xs_regex.match(rest)
        table_signs = [match[0]] if match else []
        sign = max([*table_signs, *filter(rest.startswith, _OTHER_X_SAMPA)], key=len, default="")
        if not sign:
            return ""
        # A backspace stands before one tone of the table.
        ipa += _OTHER_X_SAMPA[sign] if sign in _OTHER_X_SAMPA else table.xs2ipa[sign].strip("\b")
        rest = rest[len(sign) :]
    return unicodedata.normalize("NFC", ipa) if _is_one_phone(ipa) else ""


def _is_one_phone(ipa: str) -> bool:
    letters = (
        sign
        for sign in unicodedata.normalize("NFD", ipa)
        if unicodedata.category(sign) in ("Ll", "Lo")
    )
    return _ONE_PHONE.fullmatch("".join(letters)) is not None


@lru_cache(maxsize=1)
def xsampa_table() -> Any:
    """PanPhon's table of X-SAMPA; None if it is not installed."""
    try:
        from panphon.xsampa import XSampa
    except ImportError:
        return None
    return XSampa()


CONVERTERS: dict[str, Callable[[str], str]] = {
    IPA: ipa_to_ipa,
    ARPABET: arpabet_to_ipa,
    X_SAMPA: xsampa_to_ipa,
    PRAAT: praat_to_ipa,
}
ALPHABETS = tuple(CONVERTERS)


_EXAMPLES = {ARPABET: "'ih' is ɪ", X_SAMPA: "'I' is ɪ", PRAAT: r"'\ic' is ɪ"}


def check_alphabet(alphabet: str | None, where: str) -> None:
    """Refuse an alphabet of phones that is not known: a misspelt one would cost all phones.

    Raises
    ------
    InputError
    """
    if alphabet is not None and alphabet not in ALPHABETS:
        raise InputError(
            f"{where}: alphabet must be one of {', '.join(ALPHABETS)}, found {alphabet!r}"
        )


def convert_to_ipa(
    phones: Sequence[Word], *, alphabet: str | None = None, where: str = "phones"
) -> tuple[Word, ...]:
    """Return the phones of a tier with labels in IPA; what is converted keeps its label as
    `source_label`.

    Parameters
    ----------
    phones : sequence of Word
    alphabet : {"ipa", "arpabet", "x-sampa", "praat"}, optional
        Default: the one that the labels fit, with a warning if it is not IPA.
    where : str
        What to call the tier in an error.

    Raises
    ------
    InputError
        For labels that fit no alphabet, or not the one that is named.
    MissingExtraError
        If "x-sampa" is named and PanPhon is not installed.

    Examples
    --------
    >>> phones = [Word("HH", 0, 1), Word("AH0", 1, 2), Word("L", 2, 3)]
    >>> [phone.text for phone in convert_to_ipa(phones, alphabet="arpabet")]
    ['h', 'ə', 'l']
    """
    check_alphabet(alphabet, where)
    labels = [phone.text for phone in phones if not is_non_unit(phone.text, PHONE)]
    if alphabet == IPA or any(phone.source_label for phone in phones):
        return tuple(phones)  # named so, or converted before
    if alphabet == X_SAMPA and xsampa_table() is None:
        raise MissingExtraError("panphon", "phones", "phone labels in X-SAMPA")
    source_alphabet = alphabet or _find_alphabet(labels, where)
    if source_alphabet is None:
        return tuple(phones)
    convert = CONVERTERS[source_alphabet]
    if unknown := sorted({label for label in labels if not convert(label)}):
        raise InputError(
            f"{where}: expected labels in {source_alphabet}, found {_list_labels(unknown)}"
        )
    if alphabet is None and source_alphabet != IPA:
        warnings.warn(
            f"phones are taken as {source_alphabet} and converted to IPA ({_EXAMPLES[source_alphabet]}); if that is wrong, "
            "name their alphabet with alphabet= (--alphabet on the command line)",
            stacklevel=2,
        )
    converted = []
    for phone in phones:
        ipa = "" if is_non_unit(phone.text, PHONE) else convert(phone.text)
        if ipa not in ("", phone.text):
            phone = replace(phone, text=ipa, source_label=phone.text)
        converted.append(phone)
    return tuple(converted)


def are_phone_labels(words: Sequence[Word]) -> bool:
    """Whether words are phones by their labels: all short, with letters that only IPA has, or all
    ARPABET with its stress."""
    labels = [word.text for word in words if not is_non_unit(word.text, PHONE)]
    is_ipa = all(len(label) <= 3 for label in labels) and any(
        0x250 <= ord(letter) <= 0x2AF for label in labels for letter in label
    )
    is_arpabet = all(map(arpabet_to_ipa, labels)) and any(
        label[-1:] in "012" or label.islower() for label in labels
    )
    return len(labels) > 2 and (is_ipa or is_arpabet)


def _find_alphabet(labels: Sequence[str], where: str) -> str | None:
    """Return the alphabet that all labels fit, None for unreadable X-SAMPA, with a warning.

    InputError if they fit none, or more of them are ARPABET than are not.
    """
    distinct = sorted(set(labels))
    if any(map(has_praat_symbol, distinct)) and _fits(distinct, PRAAT):
        return PRAAT
    # Of one letter, labels may be of any alphabet; of two or more, ARPABET's are of no other as a rule.
    arpabet = [label for label in distinct if arpabet_to_ipa(label)]
    long_arpabet = [label for label in arpabet if len(re.sub("[012]$", "", label)) > 1]
    others = sorted({*distinct} - {*arpabet})
    if not others and (long_arpabet or any(label.isupper() for label in distinct)):
        return ARPABET
    if len(long_arpabet) > len(others) > 0:
        raise InputError(
            f"{where}: most labels are ARPABET, but not {_list_labels(others)}: correct them, or name "
            "the alphabet with alphabet= (--alphabet on the command line)"
        )
    if "".join(distinct).isascii() and any(re.search("[^a-z:]", label) for label in distinct):
        if xsampa_table() is None:
            warnings.warn(
                f"{where}: its labels look like X-SAMPA and stay as they are. To have them in IPA, "
                f"run {install_command('phones')}",
                stacklevel=3,
            )
            return None
        if _fits(distinct, X_SAMPA):
            return X_SAMPA
    if _fits(distinct, IPA):
        return IPA
    unfit = [label for label in distinct if not CONVERTERS[IPA](label)]
    raise InputError(
        f"{where}: its labels fit none of {', '.join(ALPHABETS)}: {_list_labels(unfit)} are not IPA: "
        "correct them, or name the alphabet with alphabet= (--alphabet on the command line)"
    )


def _fits(labels: Sequence[str], alphabet: str) -> bool:
    return all(map(CONVERTERS[alphabet], labels))


def _list_labels(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:8])) + (" ..." if len(labels) > 8 else "")


PHONE_CLASSES = (
    *("vowel", "approximant", "trill", "tap"),
    *("nasal", "fricative", "affricate", "stop"),
)
_CLASS_BY_BASE = dict.fromkeys("hɦʍ", "fricative") | dict.fromkeys("ʙrʀ", "trill")
_CLASS_BY_BASE |= dict.fromkeys("ɾɽɺⱱ", "tap")
# Other ways to write a symbol of PanPhon's, and marks that are no part of a segment: stress, breaks,
# ties between words, tones, espeak-ng's hyphen.
_SPELLINGS = {"g": "ɡ", ":": "ː", "ɚ": "ə˞", "ɝ": "ɜ˞", "ᵻ": "ɨ", "ⱱ": "ɾ", "͜": "͡"}
_SPELLINGS |= {"ʧ": "t͡ʃ", "ʤ": "d͡ʒ", "ʦ": "t͡s", "ʣ": "d͡z", "ʨ": "t͡ɕ", "ʥ": "d͡ʑ"}  # ligatures
_MARKS = "ˈˌ.‿|‖-˥˦˧˨˩"


def phone_class(label: str, *, where: str = "") -> str:
    """Return the class of a phone: vowel, approximant, trill, tap, nasal, fricative, affricate or
    stop.

    Parameters
    ----------
    label : str
        IPA. Diphthongs are vowels; a stop and its fricative are an affricate. Laterals are
        approximants or fricatives, clicks and implosives stops, nasalised vowels vowels.
    where : str
        Where the label is, for the error ("clip 'a', 1.20 s").

    Raises
    ------
    InputError
        For a label that is empty, no IPA, or several phones.
    MissingExtraError
        If PanPhon is not installed.

    Examples
    --------
    >>> [phone_class(label) for label in ("ˈɑ̃", "m", "dʒ", "ʁ", "j", "oʊ")]
    ['vowel', 'nasal', 'affricate', 'fricative', 'approximant', 'vowel']
    """
    segments = _segments(label, where)
    classes = [_segment_class(text, features) for text, features in segments]
    if classes[0] == "vowel" and {*classes[1:]} <= {"vowel", "approximant"}:
        return "vowel"
    if len(classes) > 1:
        raise InputError(
            f"{_locate(where)}{label!r} is several phones ({' '.join(text for text, _ in segments)}): expected "
            "one phone to a label; leave out labels of noise such as 'spn'"
        )
    return classes[0]


def articulatory_features(label: str, *, where: str = "") -> dict[str, int]:
    """Return the phonological features of a phone: 1 for +, -1 for -, 0 where it has none.

    A diphthong has the features of its first vowel. Labels and errors are those of `phone_class`.
    """
    phone_class(label, where=where)  # refuses labels of several phones
    features = _segments(label, where)[0][1]
    return {name: features[name] for name in features.names}


@lru_cache(maxsize=1)
def _feature_table() -> Any:
    try:
        import panphon
    except ImportError as error:
        raise MissingExtraError("panphon", "phones", "classes of phones") from error
    return panphon.FeatureTable()


def _segments(label: str, where: str) -> list[tuple[str, Any]]:
    """Return the IPA segments of a label with their features; one for an affricate without a tie
    bar."""
    text = unicodedata.normalize("NFD", "".join(c for c in label if c not in _MARKS).strip())
    text = "".join(_SPELLINGS.get(character, character) for character in text)
    table = _feature_table()
    segments = table.ipa_segs(text)
    if len(segments) == 2 and table.fts(tied := f"{segments[0]}͡{segments[1]}"):
        segments = [tied]
    unknown = text
    for segment in segments:
        unknown = unknown.replace(segment if segment in text else segment.replace("͡", ""), "", 1)
    # PanPhon leaves out some fine diacritics; a base symbol is another matter.
    unknown = "".join(c for c in unknown if unicodedata.category(c) not in ("Mn", "Lm", "Sk"))
    if unknown or not segments:
        symbols = f"no IPA symbol {unknown!r} is known" if unknown else "there is no phone in it"
        raise InputError(
            f"{_locate(where)}{label!r}: {symbols}: expected one phone in IPA, such as 'ʁ' or 'ɑ̃'"
        )
    return [(segment, table.fts(segment)) for segment in segments]


def _segment_class(text: str, features: Any) -> str:
    if text[0] in _CLASS_BY_BASE:
        return _CLASS_BY_BASE[text[0]]
    if features["syl"] == 1 and features["cons"] == -1:
        return "vowel"
    if features["nas"] == 1:
        return "nasal"
    if features["cont"] == 1:
        return "approximant" if features["son"] == 1 else "fricative"
    return "affricate" if features["delrel"] == 1 else "stop"


def _locate(where: str) -> str:
    return f"{where}: " if where else ""
