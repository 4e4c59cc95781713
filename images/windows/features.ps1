# Installs roles and features, and Hyper-V with or without its hypervisor.
# "hyper_v" is "none", "full", or "without-hypervisor" for a machine that cannot run one but needs
# Hyper-V's network components. Requests a reboot if one is pending.
# Facts: features, hyper_v, hypervisor.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    features = 'string[]'
    hyper_v = 'string'
}

$hyperV = 'Microsoft-Hyper-V'
$hypervisor = 'Microsoft-Hyper-V-Online'

function Get-OptionalState {
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [string]$Name)
    return [string](Get-WindowsOptionalFeature -Online -FeatureName $Name).State
}

function Install-Role {
    # Installs a role or feature; returns whether it did, and whether a reboot is needed.
    [CmdletBinding()] [OutputType([pscustomobject])] param([Parameter(Mandatory)] [string]$Name)
    $there = Get-WindowsFeature -Name $Name
    if (-not $there) {
        throw "there is no feature '$Name'"
    }
    $state = [string]$there.InstallState
    if ($state -eq 'Installed') {
        return [pscustomobject]@{ Changed = $false; Reboot = $false }
    }
    if ($state -eq 'InstallPending') {
        return [pscustomobject]@{ Changed = $false; Reboot = $true }
    }
    $done = Install-WindowsFeature -Name $Name -IncludeManagementTools
    if (-not $done.Success) {
        throw "'$Name' could not be installed: $($done.ExitCode)"
    }
    $reboot = [string]$done.RestartNeeded -ne 'No' -or [int]$done.ExitCode -in 3010, 1641
    return [pscustomobject]@{ Changed = $true; Reboot = $reboot }
}

function Set-Optional {
    # Has DISM enable (with all dependencies) or disable an optional feature.
    [CmdletBinding()] [OutputType([pscustomobject])]
    param(
        [Parameter(Mandatory)] [string]$Name,
        [Parameter(Mandatory)] [bool]$Enabled
    )
    $verb = if ($Enabled) { 'Enable' } else { 'Disable' }
    $state = Get-OptionalState -Name $Name
    if ($state -match "^${verb}d") {
        return [pscustomobject]@{ Changed = $false; Reboot = $false }
    }
    if ($state -eq "${verb}Pending") {
        return [pscustomobject]@{ Changed = $false; Reboot = $true }
    }
    $arguments = @('/Online', "/$verb-Feature", "/FeatureName:$Name", '/NoRestart')
    if ($Enabled) {
        $arguments += '/All'
    }
    $done = Invoke-Native -Path "$env:SystemRoot\System32\dism.exe" -Arguments $arguments -Accept 0, 3010
    $pending = (Get-OptionalState -Name $Name) -match 'Pending$'
    return [pscustomobject]@{ Changed = $true; Reboot = $done.Code -eq 3010 -or $pending }
}

exit (Invoke-Step -Name 'features' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        if ($Given.hyper_v -notin 'none', 'full', 'without-hypervisor') {
            throw "hyper_v is '$($Given.hyper_v)', not none, full or without-hypervisor"
        }
        $done = @($Given.features | ForEach-Object -Process { Install-Role -Name $_ })
        if ($Given.hyper_v -eq 'full') {
            $done += Install-Role -Name 'Hyper-V'
            $done += Install-Role -Name 'Hyper-V-PowerShell'
        }
        if ($Given.hyper_v -eq 'without-hypervisor') {
            $done += Set-Optional -Name $hyperV -Enabled $true
            $done += Set-Optional -Name $hypervisor -Enabled $false
        }
        $Result.Changed = @($done | Where-Object -FilterScript { $_.Changed }).Count -gt 0
        $Result.Reboot = @($done | Where-Object -FilterScript { $_.Reboot }).Count -gt 0
        $Result.Facts = @{
            features = @($Given.features)
            hyper_v = Get-OptionalState -Name $hyperV
            hypervisor = Get-OptionalState -Name $hypervisor
        }
    })
