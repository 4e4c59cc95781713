# The first logon of an installation: makes a fresh Windows reachable over WinRM and SSH.
# The answer file runs it from the root of the answer medium. Reports each step on COM1; opens the
# ports last and reports "phase ready". Log: C:\hybridlab\log\bootstrap.log.
[CmdletBinding()]
param([string]$Settings = (Join-Path -Path $PSScriptRoot -ChildPath 'settings.json'))

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    release = 'string'
    storage = 'string'
    surface = 'string'
    authorized_key = 'string'
    openssh = 'string?'
}

$steps = [ordered]@{
    'ports' = {
        Close-Port
    }
    'console' = {
        # A click into a console with QuickEdit blocks the program that writes to it.
        $null = Set-RegistryValue -Path 'HKCU:\Console' -Name 'QuickEdit' -Kind DWord -Value 0
        $server = 'HKLM:\SOFTWARE\Microsoft\ServerManager'
        $null = Set-RegistryValue -Path $server -Name 'DoNotOpenServerManagerAtLogon' -Kind DWord -Value 1
    }
    'sconfig' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        # Server 2022 and later start SConfig at every logon of a core installation.
        $there = Get-Command -Name 'Set-SConfig' -ErrorAction SilentlyContinue
        if ($there -and $Given.surface -eq 'core' -and $Given.release -ne '2019') {
            Set-SConfig -AutoLaunch $false
        }
    }
    'power' = {
        # The high performance plan. On firmware without hibernation the last command exits with 1.
        $null = Invoke-Native -Path 'powercfg.exe' -Arguments '/setactive', 'SCHEME_MIN'
        foreach ($what in 'monitor-timeout-ac', 'disk-timeout-ac', 'standby-timeout-ac') {
            $null = Invoke-Native -Path 'powercfg.exe' -Arguments '/change', $what, '0'
        }
        $null = Invoke-Native -Path 'powercfg.exe' -Arguments '/hibernate', 'off' -Accept 0, 1
    }
    'account' = {
        Get-Administrator | Set-LocalUser -PasswordNeverExpires $true
    }
    'drivers' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        if ($Given.storage -ne 'virtio') {
            return
        }
        $folder = Find-OnDrives -Name 'drivers' -Kind Container
        if (-not $folder) {
            throw 'no drive has a folder drivers in its root: the answer medium is not attached'
        }
        # 259 means that nothing was left to install, 3010 requests a reboot; that of the features
        # follows later.
        $null = Invoke-Native -Path 'pnputil.exe' -Accept 0, 259, 3010 -Arguments @(
            '/add-driver', (Join-Path -Path $folder -ChildPath '*.inf'), '/subdirs', '/install')
    }
    'openssh' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        $archive = ''
        if ($Given.openssh) {
            $archive = Join-Path -Path $PSScriptRoot -ChildPath $Given.openssh
        }
        $null = Install-OpenSsh -Archive $archive
        $null = Set-OpenSsh -AuthorizedKey $Given.authorized_key
    }
    'winrm' = {
        Enable-WinRm -Address '' -TimeoutMs 1800000
    }
    'autologon' = {
        # A run that continues after a reboot runs as SYSTEM: nobody has to log on again.
        $null = Disable-Autologon
    }
}

exit (Invoke-FirstLogon -Name 'bootstrap' -Script $PSCommandPath -Settings $Settings -Shape $shape -Steps $steps)
