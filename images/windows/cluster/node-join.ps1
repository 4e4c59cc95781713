# Runs kubeadm join, unless the node has joined.
# The document contains a token: only administrators can read its file, which is removed with the
# step. Files of an interrupted attempt are removed first, because kubeadm refuses them. Facts:
# joined (by this run), said (kubeadm's last lines).
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    document = 'string'
    kubeadm = 'string'
    joined = 'string'
    stale = 'string[]'
    service = 'string'
}

exit (Invoke-Step -Name 'node-join' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $Result.Facts = @{ joined = $false; said = @() }
        if (Test-Path -LiteralPath $Given.joined -PathType Leaf) {
            return
        }
        Stop-Service -Name $Given.service -Force
        $null = Remove-IfThere -Path $Given.stale
        $file = Get-StatePath -Name 'join.json'
        try {
            $null = Set-TextFile -Path $file -Text ''
            Protect-Path -Path $file
            [System.IO.File]::WriteAllText($file, $Given.document, [System.Text.Encoding]::ASCII)
            # kubeadm's paths have no drive: they are on the drive of the current folder.
            Set-Location -LiteralPath 'C:\'
            # kubeadm looks for kubelet on PATH (GetKubeletVersion of its preflight checks).
            $folder = Split-Path -Path $Given.kubeadm
            $env:Path = "$folder;$env:Path"
            $null = Add-ToPath -Folder $folder
            $said = Invoke-Join -Program $Given.kubeadm -Document $file -Written $Given.stale
        } finally {
            $null = Remove-IfThere -Path $file
        }
        if (-not (Test-Path -LiteralPath $Given.joined -PathType Leaf)) {
            throw "kubeadm ended well, and there is no '$($Given.joined)'"
        }
        $Result.Changed = $true
        $Result.Facts = @{ joined = $true; said = @($said.Output | Select-Object -Last 5) }
    })
