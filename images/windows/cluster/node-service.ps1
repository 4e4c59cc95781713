# Creates or changes a native Windows service, and starts or restarts it if needed.
# It starts with Windows, after its dependencies, and again whenever it ends. "flags_file" is
# kubeadm's kubeadm-flags.env, which a native service does not read: its flags are appended to the
# command unless the command has them. Facts: command, state, started.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    service = 'string'
    command = 'string'
    depends = 'string[]'
    environment = 'string[]'
    flags_file = 'string?'
    watched = 'string[]'
    start = 'bool'
    clear_policies = 'bool'
    seconds = 'int'
}

function Get-KubeadmFlag {
    # The flags in kubeadm's file; none if it does not exist or is empty.
    [CmdletBinding()] [OutputType([string[]])] param([Parameter(Mandatory)] [string]$Path)
    if (-not (Test-Path -LiteralPath $Path -PathType Leaf)) {
        return @()
    }
    $text = [System.IO.File]::ReadAllText($Path)
    $found = [regex]::Match($text, '(?m)^\s*KUBELET_KUBEADM_ARGS\s*=\s*"?([^"\r\n]*)"?\s*$')
    if (-not $found.Success) {
        return @()
    }
    return @($found.Groups[1].Value -split '\s+' | Where-Object -FilterScript { $_ -ne '' })
}

function Join-Flag {
    # The command, followed by those flags that it does not have.
    [CmdletBinding()] [OutputType([string])]
    param(
        [Parameter(Mandatory)] [string]$Command,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Flag
    )
    $names = @($Command -split '\s+' | ForEach-Object -Process { ($_ -split '=')[0] })
    $more = @($Flag | Where-Object -FilterScript { $names -cnotcontains ($_ -split '=')[0] })
    return (@($Command) + $more) -join ' '
}

function Set-NodeService {
    # Creates or changes the service; returns whether something differed.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [psobject]$Given,
        [Parameter(Mandatory)] [string]$Command
    )
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($Given.service)"
    $depends = if (@($Given.depends).Count -gt 0) { @($Given.depends) -join '/' } else { '/' }
    $wanted = @('binPath=', $Command, 'start=', 'auto', 'depend=', $depends)
    $changed = $false
    if (-not (Get-Service -Name $Given.service -ErrorAction SilentlyContinue)) {
        $null = Invoke-Native -Path 'sc.exe' -Arguments (@('create', $Given.service) + $wanted)
        $null = Invoke-Native -Path 'sc.exe' -Arguments 'failure', $Given.service, 'reset=', '0', 'actions=', 'restart/10000'
        $changed = $true
    } else {
        $there = Get-ItemProperty -LiteralPath $key
        $same = [string](Get-Part -Value $there -Name 'ImagePath') -ceq $Command
        $same = $same -and [int](Get-Part -Value $there -Name 'Start') -eq 2
        $known = @(Get-Part -Value $there -Name 'DependOnService' | Where-Object -FilterScript { $_ })
        if (-not $same -or ($known -join '/') -ne (@($Given.depends) -join '/')) {
            $null = Invoke-Native -Path 'sc.exe' -Arguments (@('config', $Given.service) + $wanted)
            $changed = $true
        }
    }
    if (@($Given.environment).Count -gt 0) {
        $told = Set-RegistryValue -Path $key -Name 'Environment' -Kind MultiString -Value @($Given.environment)
    } else {
        $told = Remove-RegistryValue -Path $key -Name 'Environment'
    }
    return $changed -or $told
}

function Start-NodeService {
    # Starts the service; stops it first if it runs.
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Given)
    if ((Get-Service -Name $Given.service).Status -ne 'Stopped') {
        Stop-Service -Name $Given.service -Force
    }
    if ($Given.clear_policies -and (Get-Command -Name 'Get-HnsPolicyList' -ErrorAction SilentlyContinue)) {
        Get-HnsPolicyList | Where-Object -FilterScript { $_ } | Remove-HnsPolicyList
    }
    Start-Service -Name $Given.service
    Wait-Until -What "service '$($Given.service)' to run" -Seconds $Given.seconds -Condition {
        $state = [string](Get-Service -Name $Given.service).Status
        if ($state -eq 'Running') {
            return $true
        }
        return "it is $state"
    }
}

exit (Invoke-Step -Name 'node-service' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $command = $Given.command
        if ($Given.flags_file) {
            $command = Join-Flag -Command $command -Flag @(Get-KubeadmFlag -Path $Given.flags_file)
        }
        $Result.Changed = Set-NodeService -Given $Given -Command $command
        $started = $false
        if ($Given.start) {
            $stamp = Get-StatePath -Name "service-$($Given.service)"
            $digest = Get-Digest -Text (@($command) + @($Given.environment)) -File @($Given.watched)
            $same = (Test-Path -LiteralPath $stamp -PathType Leaf) -and [System.IO.File]::ReadAllText($stamp) -ceq $digest
            $runs = (Get-Service -Name $Given.service).Status -eq 'Running'
            if ($Result.Changed -or -not $same -or -not $runs) {
                Start-NodeService -Given $Given
                $null = Set-TextFile -Path $stamp -Text $digest
                $Result.Changed = $true
                $started = $true
            }
        }
        $Result.Facts = @{
            command = $command
            state = [string](Get-Service -Name $Given.service).Status
            started = $started
        }
    })
