# Imports the bundle medium's container images into containerd; existing ones are kept.
# Facts: imported, known.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    label = 'string'
    images = 'object[]'
}

$imageShape = @{
    source = 'string'
    name = 'string'
}

$ctr = Join-Path -Path $env:ProgramFiles -ChildPath 'containerd\ctr.exe'

function Get-Known {
    # Names of the images that Kubernetes sees.
    [CmdletBinding()] [OutputType([string[]])] param()
    $said = Invoke-Native -Path $ctr -Arguments '-n', 'k8s.io', 'images', 'ls', '-q'
    return @($said.Output | ForEach-Object -Process { $_.Trim() })
}

exit (Invoke-Step -Name 'node-images' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $known = @(Get-Known)
        $imported = @()
        foreach ($image in $Given.images) {
            Confirm-Shape -Value $image -Shape $imageShape -Where 'images'
            if ($known -ccontains $image.name) {
                continue
            }
            $file = Get-MediumFile -Label $Given.label -Name $image.source
            $null = Invoke-Native -Path $ctr -Arguments '-n', 'k8s.io', 'images', 'import', $file
            if (@(Get-Known) -cnotcontains $image.name) {
                throw "'$($image.source)' was imported, and containerd knows no '$($image.name)'"
            }
            $imported += $image.name
            $Result.Changed = $true
        }
        $Result.Facts = @{ imported = $imported; known = @(Get-Known) }
    })
