"""Windows' names of time zones, as ``tzutil /l`` lists them.

From CLDR (``windowsZones.xml``, as tzlocal 5.4.5 has it), and two that Windows keeps though
CLDR does not. A name that Setup does not know stops it in the middle of specialize.
"""

from __future__ import annotations

_STANDARD = """
AUS Central; AUS Eastern; Afghanistan; Alaskan; Alberta; Aleutian; Altai; Arab; Arabian; Arabic;
Argentina; Astrakhan; Atlantic; Aus Central W.; Azerbaijan; Azores; Bahia; Bangladesh; Belarus;
Bougainville; British Columbia; Canada Central; Cape Verde; Caucasus; Cen. Australia; Central
America; Central Asia; Central Brazilian; Central Europe; Central European; Central Pacific;
Central; Chatham Islands; China; Cuba; Dateline; E. Africa; E. Australia; E. Europe; E. South
America; Easter Island; Eastern; Egypt; Ekaterinburg; FLE; Fiji; GMT; GTB; Georgian; Greenland;
Greenwich; Haiti; Hawaiian; India; Iran; Israel; Jordan; Kaliningrad; Kamchatka; Korea; Libya;
Line Islands; Lord Howe; Magadan; Magallanes; Manitoba; Marquesas; Mauritius; Mid-Atlantic;
Middle East; Montevideo; Morocco; Mountain; Myanmar; N. Central Asia; Namibia; Nepal; New
Zealand; Newfoundland; Norfolk; North Asia East; North Asia; North Korea; Omsk; Pacific SA;
Pacific; Pakistan; Paraguay; Qyzylorda; Romance; Russian; SA Eastern; SA Pacific; SA Western; SE
Asia; Saint Pierre; Sakhalin; Samoa; Sao Tome; Saratov; Singapore; South Africa; South Sudan;
Sri Lanka; Sudan; Syria; Taipei; Tasmania; Tocantins; Tokyo; Tomsk; Tonga; Transbaikal; Turkey;
Turks And Caicos; US Eastern; US Mountain; Ulaanbaatar; Venezuela; Vladivostok; Volgograd; W.
Australia; W. Central Africa; W. Europe; W. Mongolia; West Asia; West Bank; West Pacific;
Yakutsk; Yukon
"""
_OTHERS = """
Central Standard Time (Mexico); Eastern Standard Time (Mexico); Mountain Standard Time (Mexico);
Pacific Standard Time (Mexico); Russia Time Zone 10; Russia Time Zone 11; Russia Time Zone 3;
UTC; UTC+12; UTC+13; UTC-02; UTC-08; UTC-09; UTC-11
"""


def _listed(text: str) -> list[str]:
    return [" ".join(name.split()) for name in text.split(";")]


TIME_ZONES = frozenset(
    (*(f"{name} Standard Time" for name in _listed(_STANDARD)), *_listed(_OTHERS))
)
