# Copies programs from the bundle medium, which is found by its label; existing ones are kept.
# A running program cannot be overwritten: services that use one are stopped before the first copy,
# and started again by their own steps. Facts: medium, copied.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    label = 'string'
    files = 'object[]'
    stop = 'string[]'
}

$fileShape = @{
    source = 'string'
    target = 'string'
    sha256 = 'string'
}

function Test-Copied {
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [psobject]$File)
    if (-not (Test-Path -LiteralPath $File.target -PathType Leaf)) {
        return $false
    }
    $there = (Get-FileHash -LiteralPath $File.target -Algorithm SHA256).Hash.ToLowerInvariant()
    return $there -ceq $File.sha256
}

function Stop-Holder {
    # Stops those of the services that exist.
    [CmdletBinding()] param([Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Name)
    foreach ($one in $Name) {
        if (Get-Service -Name $one -ErrorAction SilentlyContinue) {
            Stop-Service -Name $one -Force
        }
    }
}

function Copy-Program {
    # Copies a file, completely or not at all; files on a CD are read-only, the copy must not be.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$File,
        [Parameter(Mandatory)] [string]$Source,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Stop
    )
    $null = New-Item -Path (Split-Path -Path $File.target -Parent) -ItemType Directory -Force
    $half = "$($File.target).part"
    [System.IO.File]::Copy($Source, $half, $true)
    [System.IO.File]::SetAttributes($half, 'Normal')
    Confirm-Sha256 -Path $half -Digest $File.sha256
    # A crashed service may be restarted once meanwhile, ten seconds after the crash.
    Wait-Until -What "'$($File.target)' to be free" -Seconds 60 -Condition {
        try {
            Stop-Holder -Name $Stop
            $null = Remove-IfThere -Path $File.target
            Move-Item -LiteralPath $half -Destination $File.target
            return $true
        } catch {
            return "$_"
        }
    }
}

exit (Invoke-Step -Name 'node-bundle' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        foreach ($file in $Given.files) {
            Confirm-Shape -Value $file -Shape $fileShape -Where 'files'
        }
        $wanted = @($Given.files | Where-Object -FilterScript { -not (Test-Copied -File $_) })
        if ($wanted.Count -gt 0) {
            Stop-Holder -Name $Given.stop
        }
        foreach ($file in $wanted) {
            Copy-Program -File $file -Source (Get-MediumFile -Label $Given.label -Name $file.source) -Stop $Given.stop
            $Result.Changed = $true
        }
        $Result.Facts = @{
            medium = Find-Medium -Label $Given.label
            copied = @($wanted | ForEach-Object -Process { [string]$_.source })
        }
    })
