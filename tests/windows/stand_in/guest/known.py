"""Every element that the stand-in knows, by pass and component: one path per line.

Those of the product's templates that public answer files for Windows Server have too
(image-builder, windows-vagrant, Kubeinit, avocado-vt, dockur). Any other stops the stand-in.
"""

from __future__ import annotations

_INTERNATIONAL = """
    InputLocale
    SystemLocale
    UILanguage
    UserLocale
"""
_ACCOUNT = """
    UserAccounts/AdministratorPassword/Value
    UserAccounts/AdministratorPassword/PlainText
    AutoLogon/Enabled
    AutoLogon/LogonCount
    AutoLogon/Username
    AutoLogon/Password/Value
    AutoLogon/Password/PlainText
"""
_RUN = """
    RunSynchronous/RunSynchronousCommand/Order
    RunSynchronous/RunSynchronousCommand/Path
    RunSynchronous/RunSynchronousCommand/Description
    RunSynchronous/RunSynchronousCommand/WillReboot
"""
_LISTED = {
    "windowsPE": {
        "Microsoft-Windows-International-Core-WinPE": _INTERNATIONAL + "SetupUILanguage/UILanguage",
        "Microsoft-Windows-PnpCustomizationsWinPE": "DriverPaths/PathAndCredentials/Path",
        "Microsoft-Windows-Setup": _RUN
        + """
            DiskConfiguration/WillShowUI
            DiskConfiguration/Disk/DiskID
            DiskConfiguration/Disk/WillWipeDisk
            DiskConfiguration/Disk/CreatePartitions/CreatePartition/Order
            DiskConfiguration/Disk/CreatePartitions/CreatePartition/Type
            DiskConfiguration/Disk/CreatePartitions/CreatePartition/Size
            DiskConfiguration/Disk/CreatePartitions/CreatePartition/Extend
            DiskConfiguration/Disk/ModifyPartitions/ModifyPartition/Order
            DiskConfiguration/Disk/ModifyPartitions/ModifyPartition/PartitionID
            DiskConfiguration/Disk/ModifyPartitions/ModifyPartition/Format
            DiskConfiguration/Disk/ModifyPartitions/ModifyPartition/Label
            DiskConfiguration/Disk/ModifyPartitions/ModifyPartition/Letter
            DiskConfiguration/Disk/ModifyPartitions/ModifyPartition/Active
            ImageInstall/OSImage/InstallFrom/MetaData/Key
            ImageInstall/OSImage/InstallFrom/MetaData/Value
            ImageInstall/OSImage/InstallTo/DiskID
            ImageInstall/OSImage/InstallTo/PartitionID
            ImageInstall/OSImage/WillShowUI
            ImageInstall/OSImage/InstallToAvailablePartition
            UserData/AcceptEula
            UserData/FullName
            UserData/Organization
            UserData/ProductKey/Key
            UserData/ProductKey/WillShowUI
            DynamicUpdate/Enable
            DynamicUpdate/WillShowUI
            Diagnostics/OptIn
            EnableFirewall
        """,
    },
    "offlineServicing": {"Microsoft-Windows-LUA-Settings": "EnableLUA"},
    "generalize": {
        "Microsoft-Windows-PnPSysprep": "PersistAllDeviceInstalls",
    },
    "specialize": {
        "Microsoft-Windows-International-Core": _INTERNATIONAL,
        "Microsoft-Windows-Shell-Setup": """
            ComputerName
            ProductKey
        """,
        "Microsoft-Windows-Deployment": _RUN,
        "Microsoft-Windows-ServerManager-SvrMgrNc": "DoNotOpenServerManagerAtLogon",
        "Microsoft-Windows-Security-SPP-UX": "SkipAutoActivation",
        "Microsoft-Windows-SQMApi": "CEIPEnabled",
    },
    "oobeSystem": {
        "Microsoft-Windows-International-Core": _INTERNATIONAL,
        "Microsoft-Windows-Shell-Setup": _ACCOUNT
        + """
            TimeZone
            OOBE/HideEULAPage
            OOBE/HideLocalAccountScreen
            OOBE/HideOEMRegistrationScreen
            OOBE/HideOnlineAccountScreens
            OOBE/HideWirelessSetupInOOBE
            OOBE/NetworkLocation
            OOBE/ProtectYourPC
            FirstLogonCommands/SynchronousCommand/Order
            FirstLogonCommands/SynchronousCommand/CommandLine
            FirstLogonCommands/SynchronousCommand/Description
            FirstLogonCommands/SynchronousCommand/RequiresUserInput
        """,
    },
}
COMPONENTS = {
    name: {
        component: frozenset(tuple(path.split("/")) for path in text.split())
        for component, text in components.items()
    }
    for name, components in _LISTED.items()
}
"""Pass to component to the paths of its leaves."""

_LOGIC = "true|false"
_SHOW = "OnError|Never|Always"
_NUMBER = "[0-9]+"
VALUES = {
    "AcceptEula": _LOGIC,
    "Active": _LOGIC,
    "CEIPEnabled": "0|1",
    "ComputerName": r"[A-Za-z0-9-]{1,15}|\*",
    "DiskID": _NUMBER,
    "DoNotOpenServerManagerAtLogon": _LOGIC,
    "EnableLUA": _LOGIC,
    "Enabled": _LOGIC,
    "Extend": _LOGIC,
    "Format": "NTFS|FAT32",
    "InstallToAvailablePartition": _LOGIC,
    "Key": r"/IMAGE/(NAME|INDEX|DESCRIPTION)|([A-Z0-9]{5}-){4}[A-Z0-9]{5}",
    "Letter": "[C-Z]",
    "LogonCount": _NUMBER,
    "Order": "[1-9][0-9]*",
    "PartitionID": "[1-9][0-9]*",
    "PlainText": _LOGIC,
    "ProductKey": r"([A-Z0-9]{5}-){4}[A-Z0-9]{5}",
    "ProtectYourPC": "[1-3]",
    "RequiresUserInput": _LOGIC,
    "Size": "[1-9][0-9]*",
    "Type": "EFI|MSR|Primary|Extended|Logical",
    "WillReboot": "Never|Always|OnRequest",
    "WillShowUI": _SHOW,
    "WillWipeDisk": _LOGIC,
}
"""Leaf to the pattern of its values, if restricted."""
