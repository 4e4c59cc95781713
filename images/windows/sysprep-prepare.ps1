# Prepares an installation for sysprep, and refuses one that must not be generalized.
# Facts: packages (removed), sid (the machine's own, which no clone may have).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    packages = 'string[]'
}

function Confirm-Fresh {
    # Refuses a node that was in use: HNS networks and kubelet's state do not survive sysprep.
    [CmdletBinding()] param()
    if (Get-Service -Name 'kubelet' -ErrorAction SilentlyContinue) {
        throw 'there is a service kubelet: a node that has joined is never generalized'
    }
    if (Get-Command -Name 'Get-HnsNetwork' -ErrorAction SilentlyContinue) {
        $names = @(Get-HnsNetwork | Where-Object -FilterScript { $_ } |
                ForEach-Object -Process { [string]$_.Name })
        if ($names.Count -gt 0) {
            throw "there are HNS networks ($($names -join ', ')): run the step hns-clean first"
        }
    }
    if ((Get-PendingReboot) -ne '') {
        throw "a reboot is pending ($(Get-PendingReboot)): sysprep would refuse"
    }
}

function Get-PendingReboot {
    # The components that wait for a reboot; empty if there are none.
    [CmdletBinding()] [OutputType([string])] param()
    $servicing = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending'
    if (Test-Path -LiteralPath $servicing) {
        return 'component servicing'
    }
    return ''
}

function Remove-Package {
    # Removes packages that were installed for a user but not for all: sysprep fails on those.
    [CmdletBinding()] [OutputType([string[]])] param([Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Pattern)
    if ($Pattern.Count -eq 0 -or -not (Get-Command -Name 'Get-AppxPackage' -ErrorAction SilentlyContinue)) {
        return
    }
    foreach ($package in @(Get-AppxPackage -AllUsers)) {
        $name = [string]$package.PackageFullName
        if (@($Pattern | Where-Object -FilterScript { $name -like $_ }).Count -eq 0) {
            continue
        }
        Remove-AppxPackage -AllUsers -Package $name
        $name
    }
}

exit (Invoke-Step -Name 'sysprep-prepare' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        Confirm-Fresh
        $removed = @(Remove-Package -Pattern @($Given.packages))
        # Generalizing may flag the password to be changed at the next logon.
        Get-Administrator | Set-LocalUser -PasswordNeverExpires $true
        $autologon = Disable-Autologon
        $answers = Remove-AnswerFile
        $own = Remove-IfThere -Path @(
            'C:\hybridlab\state', 'C:\hybridlab\openssh.zip', 'C:\hybridlab\bootstrap.ps1', 'C:\hybridlab\settings.json')
        $sid = Get-MachineSid
        $noted = Set-TextFile -Path 'C:\hybridlab\golden.sid' -Text $sid
        $Result.Changed = $removed.Count -gt 0 -or $autologon -or $answers -or $own -or $noted
        $Result.Facts = @{ packages = $removed; sid = $sid }
    })
