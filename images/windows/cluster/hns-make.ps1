# Creates HNS networks and the node's own endpoint; run by a task, because the link drops meanwhile.
# The result is saved in state\hns-make.result, for hns-state to report. The adapter's configuration
# is saved before, and restored after each creation. Facts: networks, endpoint.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    address = 'string'
    networks = 'string[]'
    endpoint = 'string?'
    attachment = 'string'
    settle_seconds = 'int'
}

function Invoke-Making {
    # Creates all of it; returns whether something was missing.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [psobject]$Given)
    $card = Get-Card -Address $Given.address
    if (Test-Made -Given $Given) {
        return $false
    }
    Start-Sleep -Seconds $Given.settle_seconds
    $last = $null
    foreach ($text in $Given.networks) {
        $last = Add-Network -Wanted (ConvertFrom-Json -InputObject $text) -Card $card
    }
    Restore-Card -Card $card
    if ($Given.endpoint) {
        $wanted = ConvertFrom-Json -InputObject $Given.endpoint
        Add-HostEndpoint -Wanted $wanted -Network ([string]$last.ID) -Attachment $Given.attachment
    }
    return $true
}

exit (Invoke-Step -Name 'hns-make' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $note = Get-StatePath -Name 'hns-make.result'
        try {
            $Result.Changed = Invoke-Making -Given $Given
            $null = Set-TextFile -Path $note -Text (ConvertTo-AsciiJson -Value @{ done = $true; error = '' })
        } catch {
            $null = Set-TextFile -Path $note -Text (ConvertTo-AsciiJson -Value @{ done = $true; error = "$_" })
            throw
        }
        $Result.Facts = @{ networks = @($Given.networks).Count; endpoint = [bool]$Given.endpoint }
    })
