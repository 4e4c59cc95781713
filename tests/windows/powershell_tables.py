"""The linter's tables for Windows PowerShell 5.1."""

from __future__ import annotations

FORBIDDEN = {
    "write-host": "standard output is for the result alone: use Write-Log",
    "write-output": "standard output is for the result alone: use Write-Log",
    "out-host": "standard output is for the result alone: use Write-Log",
    "invoke-expression": "text is never run",
    "convertto-securestring": "secrets are the answer file's business, not the scripts'",
}

AUTOMATIC = frozenset(
    """
    _ args env error event executioncontext false foreach home host input lastexitcode matches
    myinvocation null pid profile pscmdlet pscommandpath
    psculture pshome psitem psscriptroot pswversiontable pwd sender shellid stacktrace switch this
    true
    """.split()  # noqa: SIM905  readable as a table
)
"""Variables that PowerShell sets itself: always defined, and never assigned by scripts."""

PREFERENCES = frozenset({"erroractionpreference", "progresspreference"})

SWITCHES = frozenset(
    """
    allusers atstartup force includehidden includemanagementtools leaf online parent recurse
    nonewwindow passthru resetserveraddresses skipnetworkprofilecheck unique compress directory
    file disablenamechecking
    """.split()  # noqa: SIM905  readable as a table
)
"""Parameters without a value."""

COMMON = frozenset({"erroraction", "confirm"})

CMDLETS = {
    name.lower(): frozenset(parameters.lower().split())
    for name, parameters in {
        "Add-Content": "LiteralPath Value Encoding",
        "Add-Member": "MemberType Name Value Force",
        "Add-MpPreference": "ExclusionProcess Force",
        "Add-Type": "TypeDefinition",
        "Add-WindowsCapability": "Online Name",
        "ConvertFrom-Json": "InputObject",
        "ConvertTo-Json": "InputObject Compress Depth",
        "Disable-NetFirewallRule": "",
        "Enable-NetFirewallRule": "Name",
        "Enable-PSRemoting": "SkipNetworkProfileCheck Force",
        "Expand-Archive": "LiteralPath DestinationPath Force",
        "Export-ModuleMember": "Function",
        "ForEach-Object": "Process",
        "Get-AppxPackage": "AllUsers",
        "Get-ChildItem": "Path LiteralPath Filter Recurse Directory File",
        "Get-CimInstance": "ClassName",
        "Get-Command": "Name CommandType",
        "Get-Content": "LiteralPath Tail",
        "Get-Date": "",
        "Get-DnsClientServerAddress": "",
        "Get-FileHash": "LiteralPath Algorithm",
        "Get-HnsEndpoint": "",
        "Get-HnsNetwork": "",
        "Get-HnsPolicyList": "",
        "Get-Item": "Path LiteralPath",
        "Get-ItemProperty": "LiteralPath",
        "Get-LocalUser": "",
        "Get-MpPreference": "",
        "Get-NetAdapter": "Name IncludeHidden",
        "Get-NetAdapterStatistics": "",
        "Get-NetConnectionProfile": "",
        "Get-NetFirewallPortFilter": "",
        "Get-NetFirewallRule": "Name AssociatedNetFirewallPortFilter",
        "Get-NetIPAddress": "InterfaceIndex AddressFamily IPAddress",
        "Get-NetIPInterface": "AddressFamily",
        "Get-NetNeighbor": "AddressFamily",
        "Get-NetRoute": "InterfaceIndex DestinationPrefix AddressFamily",
        "Get-NetTCPConnection": "State LocalPort",
        "Get-NetUDPEndpoint": "",
        "Get-Process": "Id",
        "Get-PSDrive": "PSProvider",
        "Get-ScheduledTask": "TaskName",
        "Get-ScheduledTaskInfo": "TaskName",
        "Get-Service": "Name",
        "Get-TimeZone": "",
        "Get-Volume": "",
        "Get-WindowsFeature": "Name",
        "Get-WindowsOptionalFeature": "Online FeatureName",
        "Import-Module": "Name Force",
        "Install-WindowsFeature": "Name IncludeManagementTools",
        "Join-Path": "Path ChildPath",
        "Move-Item": "LiteralPath Destination",
        "New-Item": "Path ItemType Force Target Transport Address CertificateThumbPrint",
        "New-ItemProperty": "LiteralPath Name PropertyType Value Force",
        "New-NetFirewallRule": "Name DisplayName Description Direction Action Protocol LocalPort"
        " RemoteAddress Profile",
        "New-NetIPAddress": "InterfaceIndex AddressFamily IPAddress PrefixLength",
        "New-NetRoute": "InterfaceIndex DestinationPrefix NextHop",
        "New-Object": "TypeName ArgumentList",
        "New-ScheduledTaskAction": "Execute Argument",
        "New-ScheduledTaskPrincipal": "UserId LogonType RunLevel",
        "New-ScheduledTaskSettingsSet": "",
        "New-ScheduledTaskTrigger": "AtStartup",
        "New-SelfSignedCertificate": "",
        "Register-ScheduledTask": "TaskName Action Trigger Principal Force",
        "Remove-AppxPackage": "AllUsers Package",
        "Remove-HnsEndpoint": "",
        "Remove-HnsNetwork": "",
        "Remove-HnsPolicyList": "",
        "Remove-Item": "Path LiteralPath Recurse Force",
        "Remove-ItemProperty": "LiteralPath Name Force",
        "Remove-NetFirewallRule": "",
        "Remove-NetIPAddress": "",
        "Remove-NetRoute": "",
        "Rename-NetAdapter": "InputObject NewName",
        "Resolve-Path": "LiteralPath",
        "Restart-Service": "Name Force",
        "Select-Object": "First Last Property",
        "Set-DnsClientServerAddress": "InterfaceIndex ServerAddresses ResetServerAddresses",
        "Set-Item": "Path Value Force",
        "Set-LocalUser": "PasswordNeverExpires",
        "Set-Location": "LiteralPath",
        "Set-NetConnectionProfile": "NetworkCategory",
        "Set-NetIPInterface": "InterfaceIndex AddressFamily Dhcp Forwarding InterfaceMetric"
        " NlMtuBytes",
        "Set-SConfig": "AutoLaunch",
        "Set-Service": "Name StartupType",
        "Set-StrictMode": "Version",
        "Set-TimeZone": "Id",
        "Sort-Object": "Unique",
        "Split-Path": "Path Parent Leaf",
        "Start-Process": "FilePath ArgumentList NoNewWindow PassThru",
        "Start-ScheduledTask": "TaskName",
        "Start-Service": "Name",
        "Start-Sleep": "Seconds Milliseconds",
        "Stop-Process": "Id Force",
        "Stop-ScheduledTask": "TaskName",
        "Stop-Service": "Name Force",
        "Test-Path": "Path LiteralPath PathType",
        "Unregister-ScheduledTask": "InputObject",
        "Where-Object": "FilterScript",
    }.items()
}
"""Cmdlets and parameters in use, so that a misspelt one is found; a new one is looked up in
Microsoft's documentation before it is added here."""
