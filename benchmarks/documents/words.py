"""Words, names, phrases and numbers that fill the documents. ASCII, so that every font has them."""

from __future__ import annotations

from random import Random


def _words(text: str) -> list[str]:
    return text.split()


PROSE = _words("""
the of and to in that was his it with for had not but which all from they been have were would
there one their when more will said what some into than could time other then two after only any
about great before these made over such down must upon through where should because between never
house under again little long people same another while might still place himself against right
water nothing found morning evening world enough always though within country public without
however letter garden number company report system during second several present certain question
general history science national important government different measure result method value change
winter summer river mountain bridge station market window table paper silver copper yellow forest
island harbour village council director secretary minister officer captain doctor teacher student
family brother daughter husband children children neighbour stranger journey railway carriage
engine machine factory workshop building chamber kitchen ceiling corner shadow candle mirror
curtain bottle answer reason purpose chance danger trouble interest pleasure patience silence
courage memory belief opinion argument promise decision agreement contract payment account balance
interest invoice delivery product service customer supplier quality standard process program
project meeting committee schedule budget estimate proposal analysis evidence experiment
observation temperature pressure distance surface pattern structure function variable parameter
estimate sample average deviation model theory principle carried reached opened closed followed
returned remained received believed considered answered expected produced described required
provided increased reduced measured compared appeared happened continued quickly slowly certainly
perhaps almost already therefore moreover besides together carefully usually recently finally
directly entirely probably simply rather often seldom quite early later today tonight small large
heavy light bright dark quiet sudden narrow broad distant familiar curious pleasant ancient modern
simple complex common special similar further former latter regular annual monthly official
""")

FIRST = _words("""
Anna Jonas Maria Peter Laura Felix Emma Lukas Sofia David Clara Martin Julia Simon Nora Thomas
Helena Oscar Alice Victor Ruth Hugo Ingrid Paul Teresa Marco Elena Ivan Fatima Omar Yuki Kenji
Priya Arjun Mei Chen Rosa Diego Karin Erik
""")

LAST = _words("""
Keller Bauer Novak Lindberg Moretti Dubois Janssen Kowalski Haddad Tanaka Sharma Wagner Fischer
Schmidt Andersen Rossi Garcia Lopez Silva Costa Murphy Walker Hughes Carter Bennett Foster Harris
Morgan Palmer Turner Weber Vogel Brandt Nilsson Petrov Horvath Demir Yilmaz Nguyen Park
""")

CITIES = _words("""
Hamburg Lisbon Geneva Oslo Turin Prague Dublin Ghent Lyon Zurich Bremen Malmo Porto Graz Leeds
Bristol Verona Utrecht Bergen Krakow Seville Dresden Antwerp Nantes Aarhus Tampere Split Girona
Trieste Salzburg Cardiff Exeter
""")

STREETS = _words("""
Mill Park Church Station Harbour Garden King Queen Bridge Market School Castle North South River
Forest Linden Rose Victoria Cedar
""")

GOODS = _words("""
Milk Bread Butter Apples Coffee Cheese Tomatoes Rice Pasta Chocolate Yoghurt Bananas Olives Soap
Shampoo Batteries Napkins Juice Water Eggs Flour Sugar Honey Carrots Potatoes Onions Salad Tea
Biscuits Candles Notebook Pencils Ham Salmon Mustard Vinegar Paprika Lemons Grapes Walnuts
""")

SERVICES = _words("""
Consulting Installation Maintenance Training Licence Hosting Transport Design Printing Translation
Inspection Repair Cleaning Support Storage Assembly Calibration Rental Insurance Packaging Cable
Monitor Keyboard Adapter Printer Router Toner Bracket Sensor Pump Valve Filter
""")

COMPANY = _words("""
Nordlicht Aurelia Brightwell Castor Delphin Evergreen Falken Granit Helios Ibex Juniper Kestrel
Lumen Meridian Novus Orchard Pinnacle Quartz Rowan Solstice Tern Umbra Vela Westbrook Zephyr
""")

SUBJECTS = _words("""
Maths English Biology Physics History Music Art Sport Chemistry Geography Latin French German
Drama Ethics Economics Informatics Lunch Library Reading
""")

MONTHS = _words(
    """January February March April May June July August September October November December"""
)

REGIONS = _words("""
North South East West Central Coast Alpine Urban Rural Export Domestic Online Retail Europe Asia
Africa Americas Pacific Baltic Nordic
""")

MEASURES = _words("""
Revenue Sales Visitors Rainfall Output Orders Accidents Exports Members Profit Energy Demand
Population Traffic Yield Emissions Prices Wages Tickets Downloads
""")

UNITS = ("million EUR", "thousand", "kg per day", "mm", "GWh", "%", "units", "tonnes", "USD")

#: Phrases of user interfaces by language.
PHRASES: dict[str, dict[str, str]] = {
    "en": {
        "save": "Save",
        "cancel": "Cancel",
        "open": "Open",
        "delete": "Delete",
        "apply": "Apply",
        "retry": "Retry",
        "help": "Help",
        "yes": "Yes",
        "no": "No",
        "close": "Close",
        "next": "Next",
        "back": "Back",
        "copy": "Copy",
        "print": "Print",
        "ignore": "Ignore",
        "install": "Install",
        "file": "File",
        "edit": "Edit",
        "view": "View",
        "search": "Search",
        "settings": "Settings",
        "general": "General",
        "network": "Network",
        "display": "Display",
        "sound": "Sound",
        "privacy": "Privacy",
        "updates": "Updates",
        "account": "Account",
        "language": "Language",
        "name": "Name",
        "size": "Size",
        "date": "Date",
        "folder": "Folder",
        "password": "Password",
        "unsaved": "The document has unsaved changes.",
        "lose": "Your changes will be lost.",
        "missing": "The file could not be found.",
        "full": "There is not enough disk space.",
        "ask": "Do you want to continue?",
        "again": "Do not ask again",
        "hidden": "Show hidden files",
        "auto": "Check automatically",
        "notify": "Send notifications",
        "dark": "Use dark appearance",
        "start": "Open at start-up",
        "backup": "Keep a backup copy",
        "share": "Share usage statistics",
        "battery": "Save battery power",
    },
    "de": {
        "save": "Speichern",
        "cancel": "Abbrechen",
        "open": "\u00d6ffnen",
        "delete": "L\u00f6schen",
        "apply": "Anwenden",
        "retry": "Wiederholen",
        "help": "Hilfe",
        "yes": "Ja",
        "no": "Nein",
        "close": "Schlie\u00dfen",
        "next": "Weiter",
        "back": "Zur\u00fcck",
        "copy": "Kopieren",
        "print": "Drucken",
        "ignore": "Ignorieren",
        "install": "Installieren",
        "file": "Datei",
        "edit": "Bearbeiten",
        "view": "Ansicht",
        "search": "Suchen",
        "settings": "Einstellungen",
        "general": "Allgemein",
        "network": "Netzwerk",
        "display": "Anzeige",
        "sound": "Ton",
        "privacy": "Datenschutz",
        "updates": "Aktualisierung",
        "account": "Konto",
        "language": "Sprache",
        "name": "Name",
        "size": "Gr\u00f6\u00dfe",
        "date": "Datum",
        "folder": "Ordner",
        "password": "Passwort",
        "unsaved": "Das Dokument wurde nicht gespeichert.",
        "lose": "Ihre \u00c4nderungen gehen verloren.",
        "missing": "Die Datei wurde nicht gefunden.",
        "full": "Der Speicherplatz reicht nicht aus.",
        "ask": "M\u00f6chten Sie fortfahren?",
        "again": "Nicht mehr fragen",
        "hidden": "Versteckte Dateien zeigen",
        "auto": "Automatisch suchen",
        "notify": "Mitteilungen senden",
        "dark": "Dunkles Design",
        "start": "Beim Start \u00f6ffnen",
        "backup": "Sicherung behalten",
        "share": "Nutzungsdaten senden",
        "battery": "Akku schonen",
    },
    "fr": {
        "save": "Enregistrer",
        "cancel": "Annuler",
        "open": "Ouvrir",
        "delete": "Supprimer",
        "apply": "Appliquer",
        "retry": "R\u00e9essayer",
        "help": "Aide",
        "yes": "Oui",
        "no": "Non",
        "close": "Fermer",
        "next": "Suivant",
        "back": "Retour",
        "copy": "Copier",
        "print": "Imprimer",
        "ignore": "Ignorer",
        "install": "Installer",
        "file": "Fichier",
        "edit": "\u00c9dition",
        "view": "Affichage",
        "search": "Rechercher",
        "settings": "Param\u00e8tres",
        "general": "G\u00e9n\u00e9ral",
        "network": "R\u00e9seau",
        "display": "\u00c9cran",
        "sound": "Son",
        "privacy": "Vie priv\u00e9e",
        "updates": "Mises \u00e0 jour",
        "account": "Compte",
        "language": "Langue",
        "name": "Nom",
        "size": "Taille",
        "date": "Date",
        "folder": "Dossier",
        "password": "Mot de passe",
        "unsaved": "Le document n'a pas \u00e9t\u00e9 enregistr\u00e9.",
        "lose": "Vos modifications seront perdues.",
        "missing": "Le fichier est introuvable.",
        "full": "L'espace disque est insuffisant.",
        "ask": "Voulez-vous continuer ?",
        "again": "Ne plus demander",
        "hidden": "Fichiers cach\u00e9s visibles",
        "auto": "V\u00e9rifier seul",
        "notify": "Envoyer des alertes",
        "dark": "Apparence sombre",
        "start": "Ouvrir au d\u00e9marrage",
        "backup": "Garder une copie",
        "share": "Envoyer les statistiques",
        "battery": "\u00c9conomiser la batterie",
    },
    "es": {
        "save": "Guardar",
        "cancel": "Cancelar",
        "open": "Abrir",
        "delete": "Eliminar",
        "apply": "Aplicar",
        "retry": "Reintentar",
        "help": "Ayuda",
        "yes": "S\u00ed",
        "no": "No",
        "close": "Cerrar",
        "next": "Siguiente",
        "back": "Atr\u00e1s",
        "copy": "Copiar",
        "print": "Imprimir",
        "ignore": "Omitir",
        "install": "Instalar",
        "file": "Archivo",
        "edit": "Editar",
        "view": "Ver",
        "search": "Buscar",
        "settings": "Ajustes",
        "general": "General",
        "network": "Red",
        "display": "Pantalla",
        "sound": "Sonido",
        "privacy": "Privacidad",
        "updates": "Actualizar",
        "account": "Cuenta",
        "language": "Idioma",
        "name": "Nombre",
        "size": "Tama\u00f1o",
        "date": "Fecha",
        "folder": "Carpeta",
        "password": "Contrase\u00f1a",
        "unsaved": "El documento tiene cambios sin guardar.",
        "lose": "Se perder\u00e1n los cambios.",
        "missing": "No se encuentra el archivo.",
        "full": "No hay espacio en el disco.",
        "ask": "\u00bfDesea continuar?",
        "again": "No volver a preguntar",
        "hidden": "Mostrar archivos ocultos",
        "auto": "Buscar solo",
        "notify": "Enviar avisos",
        "dark": "Usar modo oscuro",
        "start": "Abrir al iniciar",
        "backup": "Guardar una copia",
        "share": "Compartir estad\u00edsticas",
        "battery": "Ahorrar bater\u00eda",
    },
}

BUTTONS = ("save", "cancel", "open", "delete", "apply", "retry", "help", "yes", "no", "close",
           "next", "back", "copy", "print", "ignore", "install")  # fmt: skip
OPTIONS = ("again", "hidden", "auto", "notify", "dark", "start", "backup", "share", "battery")
MESSAGES = ("unsaved", "lose", "missing", "full", "ask")
SECTIONS = ("general", "network", "display", "sound", "privacy", "updates", "account", "language",
            "file", "edit", "view", "search")  # fmt: skip


def person(rng: Random) -> str:
    """Return a first and a last name."""
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def street(rng: Random) -> str:
    """Return a street and a house number."""
    return f"{rng.choice(STREETS)} {rng.choice(('Street', 'Road', 'Lane'))} {rng.randint(2, 198)}"


def city(rng: Random) -> str:
    """Return a postal code and a town."""
    return f"{rng.randint(10000, 99999)} {rng.choice(CITIES)}"


def iso_date(rng: Random) -> str:
    """Return a date such as 2021-03-14."""
    return f"{rng.randint(1998, 2026)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def dotted_date(rng: Random) -> str:
    """Return a date such as 14.03.2021."""
    return f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.{rng.randint(1998, 2026)}"


def long_date(rng: Random) -> str:
    """Return a date such as 14 March 2021."""
    return f"{rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(1998, 2026)}"


def time(rng: Random) -> str:
    """Return a time such as 08:35."""
    return f"{rng.randint(5, 23):02d}:{rng.randint(0, 59):02d}"


def amount(rng: Random) -> str:
    """Return an amount of money with two decimals, 1 to 10,000, small ones more often."""
    return f"{10 ** rng.uniform(0, 4):,.2f}"


def price(rng: Random) -> str:
    """Return a price of a shop, 0.50 to 60."""
    return f"{rng.choice((0.5, 1, 1, 2, 5)) * rng.uniform(1, 12):.2f}"


def code(rng: Random, pattern: str = "##-####") -> str:
    """Return the pattern with a digit for every ``#`` and a capital for every ``?``."""
    letters = {"#": "0123456789", "?": "ABCDEFGHKLMNPRSTUVWXYZ"}
    return "".join(rng.choice(letters[c]) if c in letters else c for c in pattern)


def phrase(rng: Random, least: int = 2, most: int = 5) -> str:
    """Return a few words as a title, the first one capitalised."""
    return " ".join(rng.choices(PROSE, k=rng.randint(least, most))).capitalize()


def prose(rng: Random, number: int) -> list[str]:
    """Return words of sentences: capitals, commas, full stops, and a figure now and then."""
    words: list[str] = []
    while len(words) < number:
        sentence = rng.choices(PROSE, k=rng.randint(6, 18))
        sentence[0] = sentence[0].capitalize()
        if rng.random() < 0.4:
            sentence[rng.randrange(2, 6)] = rng.choice(
                (
                    str(rng.randint(1800, 2029)),
                    str(rng.randint(12, 999)),
                    f"{rng.uniform(1, 99):.1f}",
                )
            )
        if len(sentence) > 9:
            sentence[4] += ","
        sentence[-1] += "."
        words += sentence
    return words[:number]
