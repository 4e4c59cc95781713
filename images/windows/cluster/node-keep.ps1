# Keeps a program running as long as its task runs, and the node's configuration on its adapter.
# The scheduler restarts a task that could not be started, but not one whose program has ended
# (MS-TSCH 2.5.4.2): flanneld exits with 1 on any error, so it is restarted here. flanneld creates
# HNS' overlay, which replaces the physical adapter with a virtual one at every start of the
# machine. Facts: none; it never ends by itself.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    address = 'string'
    program = 'string'
    arguments = 'string[]'
    environment = 'string[]'
    pause_seconds = 'int'
    stale = 'string[]'
    ends = 'string[]'
    network = 'string?'
    vsid = 'int'
    runtime = 'string'
}

function Invoke-Program {
    # Runs the program to its end; when the node's address has moved, the new adapter gets the rest.
    # A look at the adapters that fails is no end of the program: a second one would be started.
    # A program that has itself made the network which moved the address is ended once it has written
    # its files, and started again: its connection to the API server was cut with the card, and may
    # wait for an answer for ever (sig-windows-tools 37).
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Given,
        [Parameter(Mandatory)] [psobject]$Card
    )
    $at = Get-AddressIndex -Address $Given.address
    $process = Start-Process -FilePath $Given.program -ArgumentList $Given.arguments -NoNewWindow -PassThru
    $moved = $false
    while (-not $process.WaitForExit(2000)) {
        try {
            if ((Get-AddressIndex -Address $Given.address) -ne $at) {
                Restore-Card -Card $Card
                $at = Get-AddressIndex -Address $Given.address
                $moved = $true
            }
            $missing = @($Given.stale | Where-Object -FilterScript { -not (Test-Path -LiteralPath $_) })
            if ($moved -and $missing.Count -eq 0) {
                Write-Log -Message "ended, because the node's address has moved while it ran"
                $null = Stop-Program -Name $Given.ends
                $moved = $false
            }
        } catch {
            Write-Log -Message "again in 2 s: $_"
        }
    }
}

exit (Invoke-Step -Name 'node-keep' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $Result.Changed = $true
        foreach ($one in $Given.environment) {
            $name, $value = $one -split '=', 2
            [Environment]::SetEnvironmentVariable($name, $value, 'Process')
        }
        $cleared = $false
        $earlier = @{
            Files = @($Given.stale)
            Name = [string]$Given.network
            Vsid = $Given.vsid
            Address = $Given.address
            Runtime = $Given.runtime
        }
        while ($true) {
            Start-Sleep -Seconds $Given.pause_seconds
            try {
                $cleared = $cleared -or (Clear-EarlierStart @earlier)
                $card = Get-Card -Address $Given.address
                Restore-Card -Card $card
                Invoke-Program -Given $Given -Card $card
                Write-Log -Message "'$($Given.program)' has ended; it is started again"
            } catch {
                Write-Log -Message "again in $($Given.pause_seconds) s: $_"
            }
        }
    })
