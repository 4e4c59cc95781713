# Reports what the node is and what an earlier membership left on it; changes nothing.
# Facts: build, revision, computer, address (whether it has it), medium (its root), there (which of
# the paths exist), networks (of HNS), registered (services of a node), evaluation (minutes that
# remain; null if Windows is not an evaluation, or does not say).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    address = 'string'
    label = 'string'
    paths = 'string[]'
}

$current = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'

# Microsoft's reference, class SoftwareLicensingProduct: GracePeriodRemaining is in minutes.
function Get-EvaluationMinutes {
    [CmdletBinding()] [OutputType([object])]
    param([Parameter(Mandatory)] [string]$Edition)
    if ($Edition -notlike '*Eval') { return $null }
    $query = @{
        ClassName = 'SoftwareLicensingProduct'
        Filter = "Name LIKE 'Windows%' AND PartialProductKey IS NOT NULL"
        ErrorAction = 'SilentlyContinue'
    }
    $licence = @(Get-CimInstance @query)
    if ($licence.Count -eq 0) { return $null }
    return [long]$licence[0].GracePeriodRemaining
}

exit (Invoke-Step -Name 'node-survey' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $read = Get-ItemProperty -LiteralPath $current
        $services = @('containerd', 'kubelet', 'kube-proxy' | Where-Object -FilterScript {
                Get-Service -Name $_ -ErrorAction SilentlyContinue
            })
        $Result.Facts = @{
            build = [int]$read.CurrentBuildNumber
            revision = [int]$read.UBR
            computer = [string]$env:COMPUTERNAME
            clock = (Get-Date).ToUniversalTime().ToString('yyyy-MM-ddTHH:mm:ssZ')
            evaluation = Get-EvaluationMinutes -Edition ([string]$read.EditionID)
            address = [bool](Get-AddressIndex -Address $Given.address)
            medium = Find-Medium -Label $Given.label
            there = @($Given.paths | Where-Object -FilterScript { Test-Path -LiteralPath $_ })
            networks = @(Get-HnsList -Kind networks | ForEach-Object -Process { [string]$_.Name })
            registered = $services
        }
    })
