# Makes the lab's inbound rules of a node exactly the given ones; others are left alone.
# The lab's rules have names that begin with "hybridlab-node-". Facts: rules.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    rules = 'object[]'
}

$ruleShape = @{
    name = 'string'
    protocol = 'string'
    ports = 'string[]'
    remote = 'string[]'
}

$ours = 'hybridlab-node-'

function Get-Wish {
    # A rule as one line for comparison, which is kept as the rule's description.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [psobject]$Rule)
    return "$($Rule.protocol) ports $(@($Rule.ports) -join ',') from $(@($Rule.remote) -join ',')"
}

function Add-Rule {
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject]$Rule)
    $wanted = @{
        Name = "$ours$($Rule.name)"
        DisplayName = "$ours$($Rule.name)"
        Description = Get-Wish -Rule $Rule
        Direction = 'Inbound'
        Action = 'Allow'
        Profile = 'Any'
        Protocol = $Rule.protocol
    }
    if (@($Rule.ports).Count -gt 0) {
        $wanted.LocalPort = @($Rule.ports)
    }
    if (@($Rule.remote).Count -gt 0) {
        $wanted.RemoteAddress = @($Rule.remote)
    }
    $null = New-NetFirewallRule @wanted
}

exit (Invoke-Step -Name 'firewall' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        foreach ($rule in $Given.rules) {
            Confirm-Shape -Value $rule -Shape $ruleShape -Where 'rules'
        }
        $there = @(Get-NetFirewallRule -Name "$ours*" -ErrorAction SilentlyContinue)
        $wishes = @{}
        foreach ($rule in $Given.rules) {
            $wishes["$ours$($rule.name)"] = Get-Wish -Rule $rule
        }
        $stale = @($there | Where-Object -FilterScript { $wishes[$_.Name] -cne $_.Description })
        $stale | Remove-NetFirewallRule
        $gone = @($stale | ForEach-Object -Process { $_.Name })
        $left = @($there | ForEach-Object -Process { $_.Name } |
                Where-Object -FilterScript { $gone -notcontains $_ })
        $missing = @($Given.rules |
                Where-Object -FilterScript { $left -notcontains "$ours$($_.name)" })
        $missing | ForEach-Object -Process { Add-Rule -Rule $_ }
        $Result.Changed = $stale.Count + $missing.Count -gt 0
        $Result.Facts = @{ rules = @($wishes.Keys | Sort-Object) }
    })
