# Settings of a node: registry values, the dynamic port range, Defender exclusions.
# The caller provides the values. Values of the HNS require a reboot. Facts: registry (how many
# differed before), ports.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    registry = 'object[]'
    port_start = 'int'
    port_count = 'int'
    defender_processes = 'string[]'
}

$valueShape = @{
    path = 'string'
    name = 'string'
    number = 'int'
}

function Set-PortRange {
    # Sets the range of dynamic TCP ports; returns whether it differed before.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [int]$Start,
        [Parameter(Mandatory)] [int]$Count
    )
    $there = (Invoke-Native -Path 'netsh.exe' -Arguments 'int', 'ipv4', 'show', 'dynamicport', 'tcp').Output
    $numbers = @([regex]::Matches($there -join "`n", ':\s*(\d+)') |
            ForEach-Object -Process { [int]$_.Groups[1].Value })
    if (($numbers -join ' ') -eq "$Start $Count") {
        return $false
    }
    $null = Invoke-Native -Path 'netsh.exe' -Arguments @(
        'int', 'ipv4', 'set', 'dynamicport', 'tcp', "start=$Start", "num=$Count")
    return $true
}

function Add-Exclusion {
    # Excludes processes from Defender, if there is a Defender; returns whether any was new.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Process)
    if (-not (Get-Command -Name 'Get-MpPreference' -ErrorAction SilentlyContinue)) {
        return $false
    }
    $there = @((Get-MpPreference).ExclusionProcess)
    $missing = @($Process | Where-Object -FilterScript { $there -notcontains $_ })
    if ($missing.Count -gt 0) {
        Add-MpPreference -ExclusionProcess $missing -Force
    }
    return $missing.Count -gt 0
}

exit (Invoke-Step -Name 'settings' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $others = 0
        foreach ($value in $Given.registry) {
            Confirm-Shape -Value $value -Shape $valueShape -Where 'registry'
            if (Set-RegistryValue -Path $value.path -Name $value.name -Kind DWord -Value ([int]$value.number)) {
                $others += 1
                if ($value.path -match '\\(hns|wcifs|FeatureManagement)(\\|$)') {
                    $Result.Reboot = $true
                }
            }
        }
        $ports = Set-PortRange -Start $Given.port_start -Count $Given.port_count
        $excluded = Add-Exclusion -Process @($Given.defender_processes)
        $Result.Changed = $others -gt 0 -or $ports -or $excluded
        $Result.Facts = @{ registry = $others; ports = "$($Given.port_start) and $($Given.port_count) of them" }
    })
