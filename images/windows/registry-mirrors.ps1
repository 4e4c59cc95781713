# Configures which mirrors containerd tries before a registry (hosts.toml); removes the lab's old
# ones. containerd reads these files at every pull, so no restart is needed.
# Facts: registries.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    folder = 'string'
    mirrors = 'object[]'
}

$mirrorShape = @{
    registry = 'string'
    endpoints = 'string[]'
    ca = 'string?'
}

$mark = '# hybridlab'

function Get-FolderName {
    # The folder of a registry: Windows allows no colons in names; containerd looks for "_port_".
    [CmdletBinding()] [OutputType([string])]
    param([Parameter(Mandatory)] [ValidatePattern('^[A-Za-z0-9._:-]+$')] [string]$Registry)
    return $Registry -replace ':(\d+)$', '_$1_'
}

function Get-HostsFile {
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [psobject]$Mirror)
    $lines = @($mark)
    foreach ($endpoint in $Mirror.endpoints) {
        $lines += "[host.'$endpoint']"
        $lines += 'capabilities = ["pull", "resolve"]'
        if ($Mirror.ca) {
            $lines += "ca = '$($Mirror.ca)'"
        }
    }
    return ($lines -join "`n") + "`n"
}

exit (Invoke-Step -Name 'registry-mirrors' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $wanted = @{}
        foreach ($mirror in $Given.mirrors) {
            Confirm-Shape -Value $mirror -Shape $mirrorShape -Where 'mirrors'
            $name = Get-FolderName -Registry $mirror.registry
            $wanted[$name] = Get-HostsFile -Mirror $mirror
        }
        $null = New-Item -Path $Given.folder -ItemType Directory -Force
        foreach ($there in @(Get-ChildItem -LiteralPath $Given.folder -Directory)) {
            $file = Join-Path -Path $there.FullName -ChildPath 'hosts.toml'
            if ($wanted.ContainsKey($there.Name) -or -not (Test-Path -LiteralPath $file -PathType Leaf)) {
                continue
            }
            if ([System.IO.File]::ReadAllText($file).StartsWith($mark)) {
                Remove-Item -LiteralPath $there.FullName -Recurse -Force
                $Result.Changed = $true
            }
        }
        foreach ($name in $wanted.Keys) {
            $file = Join-Path -Path (Join-Path -Path $Given.folder -ChildPath $name) -ChildPath 'hosts.toml'
            if (Set-TextFile -Path $file -Text $wanted[$name]) {
                $Result.Changed = $true
            }
        }
        $Result.Facts = @{ registries = @($wanted.Keys | Sort-Object) }
    })
