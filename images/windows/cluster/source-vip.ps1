# An address that no pod gets: reserved once with host-local, or that of an HNS endpoint.
# kube-proxy's source address on an overlay; on flannel's bridge it is the node's own endpoint's.
# Facts: address.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    plugin = 'string'
    request = 'string'
    request_file = 'string'
    answer_file = 'string'
    container = 'string'
    endpoint = 'string?'
}

function Invoke-Plugin {
    # Runs a CNI plugin; returns its output.
    # The configuration is written as bytes: a .NET writer would prepend a byte order mark.
    [CmdletBinding()] [OutputType([string])]
    param(
        [Parameter(Mandatory)] [psobject]$Given,
        [Parameter(Mandatory)] [ValidateSet('ADD', 'DEL')] [string]$Command
    )
    $start = New-Object -TypeName 'System.Diagnostics.ProcessStartInfo'
    $start.FileName = $Given.plugin
    $start.UseShellExecute = $false
    $start.RedirectStandardInput = $true
    $start.RedirectStandardOutput = $true
    $start.EnvironmentVariables['CNI_COMMAND'] = $Command
    $start.EnvironmentVariables['CNI_CONTAINERID'] = $Given.container
    $start.EnvironmentVariables['CNI_NETNS'] = $Given.container
    $start.EnvironmentVariables['CNI_IFNAME'] = $Given.container
    $start.EnvironmentVariables['CNI_PATH'] = Split-Path -Path $Given.plugin -Parent
    # host-local's folder has no drive: it is on the drive of the current folder.
    $start.WorkingDirectory = 'C:\'
    $process = [System.Diagnostics.Process]::Start($start)
    $bytes = [System.Text.Encoding]::ASCII.GetBytes($Given.request)
    $process.StandardInput.BaseStream.Write($bytes, 0, $bytes.Length)
    $process.StandardInput.BaseStream.Close()
    $said = $process.StandardOutput.ReadToEnd()
    $process.WaitForExit()
    if ($process.ExitCode -ne 0) {
        throw "'$($Given.plugin)' $Command ended with exit code $($process.ExitCode): $said"
    }
    return $said
}

function Get-Reserved {
    # The address in host-local's answer; empty if there is none for this request.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [psobject]$Given)
    foreach ($file in $Given.answer_file, $Given.request_file) {
        if (-not (Test-Path -LiteralPath $file -PathType Leaf)) {
            return ''
        }
    }
    if ([System.IO.File]::ReadAllText($Given.request_file) -cne $Given.request) {
        return ''
    }
    $answer = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($Given.answer_file))
    return ([string](Get-Part -Value (Get-Part -Value $answer -Name 'ip4') -Name 'ip') -split '/')[0]
}

function Add-Reserved {
    # Reserves an address. An interrupted run may have reserved one already: it is released first.
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Given)
    $null = Remove-IfThere -Path $Given.answer_file
    $null = Set-TextFile -Path $Given.request_file -Text $Given.request
    $null = Invoke-Plugin -Given $Given -Command DEL
    $said = Invoke-Plugin -Given $Given -Command ADD
    $null = Set-TextFile -Path $Given.answer_file -Text $said
}

exit (Invoke-Step -Name 'source-vip' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        if ($Given.endpoint) {
            $found = @(Get-HnsList -Kind endpoints | Where-Object -FilterScript { $_.Name -eq $Given.endpoint })
            if ($found.Count -eq 0) {
                throw "HNS has no endpoint '$($Given.endpoint)' yet"
            }
            $Result.Facts = @{ address = [string](Get-Part -Value $found[0] -Name 'IPAddress') }
            return
        }
        if (-not (Get-Reserved -Given $Given)) {
            Add-Reserved -Given $Given
            $Result.Changed = $true
        }
        $address = Get-Reserved -Given $Given
        if (-not $address) {
            throw "'$($Given.answer_file)' has no address in it"
        }
        $Result.Facts = @{ address = $address }
    })
