# Sets the time zone, and where the time comes from.
# Facts: zone, status of the clock's service.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    zone = 'string'
    server = 'string?'
}

exit (Invoke-Step -Name 'time' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $Result.Changed = Set-Zone -Id $Given.zone
        if ($Given.server) {
            if (Set-TimeServer -Server $Given.server) {
                $Result.Changed = $true
            }
        }
        $Result.Facts = @{
            zone = [string](Get-TimeZone).Id
            service = [string](Get-Service -Name 'W32Time').Status
        }
    })
