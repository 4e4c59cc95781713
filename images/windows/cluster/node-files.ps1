# Writes a node's folders, files and links.
# Facts: written, removed.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    folders = 'string[]'
    files = 'object[]'
    links = 'object[]'
    alone = 'string[]'
}

$fileShape = @{
    path = 'string'
    text = 'string'
    secret = 'bool'
}

$linkShape = @{
    path = 'string'
    target = 'string'
}

function Set-Link {
    # Makes a symbolic link to a folder; returns whether it did not exist.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [psobject]$Link)
    if (Test-Path -LiteralPath $Link.path) {
        $there = @((Get-Item -LiteralPath $Link.path).Target) -join ''
        if ($there -eq $Link.target) {
            return $false
        }
        throw "'$($Link.path)' is there and no link to '$($Link.target)'"
    }
    $null = New-Item -Path (Split-Path -Path $Link.path -Parent) -ItemType Directory -Force
    $null = New-Item -Path $Link.path -ItemType SymbolicLink -Target $Link.target
    return $true
}

function Remove-Other {
    # Removes other files than the lab's from a folder; returns their paths.
    [CmdletBinding()] [OutputType([string[]])]
    param(
        [Parameter(Mandatory)] [string]$Folder,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Ours
    )
    if (-not (Test-Path -LiteralPath $Folder -PathType Container)) {
        return @()
    }
    $others = @(Get-ChildItem -LiteralPath $Folder -File | ForEach-Object -Process { $_.FullName } |
            Where-Object -FilterScript { $Ours -notcontains $_ })
    foreach ($one in $others) {
        Remove-Item -LiteralPath $one -Force
    }
    return $others
}

exit (Invoke-Step -Name 'node-files' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        foreach ($folder in $Given.folders) {
            if (-not (Test-Path -LiteralPath $folder -PathType Container)) {
                $null = New-Item -Path $folder -ItemType Directory -Force
                $Result.Changed = $true
            }
        }
        $written = @()
        foreach ($file in $Given.files) {
            Confirm-Shape -Value $file -Shape $fileShape -Where 'files'
            if (Set-TextFile -Path $file.path -Text $file.text) {
                $written += $file.path
            }
            if ($file.secret) {
                Protect-Path -Path $file.path
            }
        }
        foreach ($link in $Given.links) {
            Confirm-Shape -Value $link -Shape $linkShape -Where 'links'
            if (Set-Link -Link $link) {
                $written += $link.path
            }
        }
        $ours = @($Given.files | ForEach-Object -Process { [string]$_.path })
        $removed = @($Given.alone | ForEach-Object -Process { Remove-Other -Folder $_ -Ours $ours })
        if ($written.Count + $removed.Count -gt 0) {
            $Result.Changed = $true
        }
        $Result.Facts = @{ written = $written; removed = $removed }
    })
