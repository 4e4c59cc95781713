# Makes containerd, whose programs come from the bundle, answer on its pipe.
# The configuration is containerd's default with the CNI paths, the sandbox image and the folder of
# registry mirrors set; versions 2, 3 and 4 of its format are supported (containerd 1.7, 2.0 to 2.2,
# 2.3). Facts: version, config_version.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    sandbox_image = 'string'
    cni_bin = 'string'
    cni_conf = 'string'
    mirrors = 'string'
    log = 'string'
    pipe_seconds = 'int'
}

$folder = Join-Path -Path $env:ProgramFiles -ChildPath 'containerd'
$program = Join-Path -Path $folder -ChildPath 'containerd.exe'
$config = Join-Path -Path $folder -ChildPath 'config.toml'
$pipe = 'containerd-containerd'

function Get-Section {
    # The name of the table that a line of TOML opens, without quotes; empty for other lines.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [AllowEmptyString()] [string]$Line)
    $found = [regex]::Match($Line, '^\s*\[([^\[\]]+)\]\s*$')
    if (-not $found.Success) {
        return ''
    }
    return ($found.Groups[1].Value -replace '["'']', '').Trim()
}

function Set-TomlValue {
    # The lines of a TOML text with one key of one table set; a missing key is added, a missing
    # table is an error.
    [CmdletBinding()] [OutputType([string[]])]
    param(
        [Parameter(Mandatory)] [AllowEmptyString()] [string[]]$Line,
        [Parameter(Mandatory)] [string]$Section,
        [Parameter(Mandatory)] [string]$Key,
        [Parameter(Mandatory)] [string]$Value
    )
    $written = New-Object -TypeName 'System.Collections.Generic.List[string]'
    $header = -1
    $set = $false
    $inside = $false
    foreach ($one in $Line) {
        $opened = Get-Section -Line $one
        if ($opened -ne '') {
            $inside = $opened -ceq $Section
            if ($inside) {
                $header = $written.Count
            }
        }
        if ($inside -and $one -match "^\s*$Key\s*=") {
            $written.Add("$Key = $Value")
            $set = $true
        } else {
            $written.Add($one)
        }
    }
    if ($header -lt 0) {
        throw "the default configuration of containerd has no [$Section]: its format is a new one"
    }
    if (-not $set) {
        $written.Insert($header + 1, "$Key = $Value")
    }
    return $written.ToArray()
}

function Get-Configuration {
    # The wanted configuration as text, and the version of its format.
    [CmdletBinding()] [OutputType([pscustomobject])] param([Parameter(Mandatory)] [psobject]$Given)
    $lines = (Invoke-Native -Path $program -Arguments 'config', 'default').Output
    $said = [regex]::Match($lines -join "`n", '(?m)^\s*version\s*=\s*(\d+)')
    $version = if ($said.Success) { [int]$said.Groups[1].Value } else { 0 }
    # In single quotes TOML takes a text literally, backslashes included.
    $bin = "'$($Given.cni_bin)'"
    if ($version -eq 2) {
        $cri = 'plugins.io.containerd.grpc.v1.cri'
        $wanted = @(
            @($cri, 'sandbox_image', "'$($Given.sandbox_image)'"),
            @("$cri.cni", 'bin_dir', $bin),
            @("$cri.cni", 'conf_dir', "'$($Given.cni_conf)'"),
            @("$cri.registry", 'config_path', "'$($Given.mirrors)'"))
    } elseif ($version -in 3, 4) {
        $images = 'plugins.io.containerd.cri.v1.images'
        $cni = 'plugins.io.containerd.cri.v1.runtime.cni'
        # 2.0 has only bin_dir; since 2.1 there is bin_dirs, and bin_dir is empty.
        $many = @($lines | Where-Object -FilterScript { $_ -match '^\s*bin_dirs\s*=' }).Count -gt 0
        $place = if ($many) { @($cni, 'bin_dirs', "[$bin]") } else { @($cni, 'bin_dir', $bin) }
        $wanted = @(
            @("$images.pinned_images", 'sandbox', "'$($Given.sandbox_image)'"),
            $place,
            @($cni, 'conf_dir', "'$($Given.cni_conf)'"),
            @("$images.registry", 'config_path', "'$($Given.mirrors)'"))
    } else {
        throw "containerd's configuration is of version $version; 2, 3 and 4 are known"
    }
    foreach ($one in $wanted) {
        $lines = Set-TomlValue -Line $lines -Section $one[0] -Key $one[1] -Value $one[2]
    }
    return [pscustomobject]@{ Text = ($lines -join "`n") + "`n"; Version = $version }
}

function Wait-Pipe {
    [CmdletBinding()] param([Parameter(Mandatory)] [int]$Seconds)
    Wait-Until -What "containerd's pipe" -Seconds $Seconds -Condition {
        # Listing all pipes fails when any has an odd name: "Illegal characters in path".
        if (Test-Path -LiteralPath "\\.\pipe\$pipe") {
            return $true
        }
        return "no \\.\pipe\$pipe; the service is $((Get-Service -Name 'containerd').Status)"
    }
}

exit (Invoke-Step -Name 'containerd' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $service = Get-Service -Name 'containerd' -ErrorAction SilentlyContinue
        $null = New-Item -Path $Given.cni_bin, $Given.cni_conf, $Given.mirrors, (Split-Path -Path $Given.log -Parent) -ItemType Directory -Force
        $wanted = Get-Configuration -Given $Given
        $configured = Set-TextFile -Path $config -Text $wanted.Text
        $null = Set-TextFile -Path "$env:USERPROFILE\.crictl\crictl.yaml" -Text (
            "runtime-endpoint: npipe:////./pipe/$pipe`nimage-endpoint: npipe:////./pipe/$pipe`n")
        if (Add-ToPath -Folder $folder) {
            $Result.Changed = $true
        }
        if (-not $service) {
            $null = Invoke-Native -Path $program -Arguments '--register-service', '--log-file', $Given.log
            $null = Invoke-Native -Path 'sc.exe' -Arguments 'failure', 'containerd', 'reset=', '0', 'actions=', 'restart/10000'
            $Result.Changed = $true
        }
        if ($configured) {
            Stop-Service -Name 'containerd' -Force
            $Result.Changed = $true
        }
        Start-Service -Name 'containerd'
        Wait-Pipe -Seconds $Given.pipe_seconds
        $null = Invoke-Native -Path (Join-Path -Path $folder -ChildPath 'ctr.exe') -Arguments 'version'
        $version = (Invoke-Native -Path $program -Arguments '--version').Output -join ' '
        $Result.Facts = @{ version = $version; config_version = $wanted.Version }
    })
