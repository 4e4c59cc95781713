# NetSecurity on a Wine node: rules are kept in the registry. Linux lets all packets in, as Windows
# does with the rules that the lab makes; those that block inbound packets to a port are rules of
# nftables, until the node starts again.

Set-StrictMode -Version 3.0
$script:Rules = 'HKLM:\SOFTWARE\hybridlab\FirewallRules'

function Get-NetFirewallRule {
    [CmdletBinding()] param([Parameter(Position = 0)] [string[]]$Name = '*', [psobject]$AssociatedNetFirewallPortFilter)
    if ($AssociatedNetFirewallPortFilter) { $Name = $AssociatedNetFirewallPortFilter.InstanceID }
    $rules = @(Get-ChildItem -LiteralPath $script:Rules -ErrorAction SilentlyContinue | ForEach-Object -Process {
            ConvertFrom-Json -InputObject ([string](Get-ItemProperty -LiteralPath $_.PSPath).Rule)
        })
    $matching = @($rules | Where-Object -FilterScript {
            $rule = $_
            @($Name | Where-Object -FilterScript { $rule.Name -like $_ }).Count -gt 0
        })
    if ($matching.Count -eq 0) {
        Write-Error -Message "No MSFT_NetFirewallRule objects found with property 'InstanceID' equal to '$Name'." -Category ObjectNotFound
    }
    $matching
}

function Set-Block {
    # Makes Linux block what the rules block.
    [CmdletBinding()] param()
    $lines = foreach ($rule in @(Get-NetFirewallRule -ErrorAction SilentlyContinue)) {
        if ($rule.Enabled -ne 'True' -or $rule.Action -ne 'Block' -or $rule.Direction -ne 'Inbound') { continue }
        foreach ($port in @($rule.LocalPort)) { "$("$($rule.Protocol)".ToLowerInvariant()) dport $port drop;" }
    }
    $table = 'table inet hybridlab-firewall'
    $chain = "chain input { type filter hook input priority 0; policy accept; iifname lo accept; $lines }"
    $null = Invoke-Linux -Program 'nft' -Words "$table { }; delete $table; $table { $chain; }"
}

function New-NetFirewallRule {
    [CmdletBinding()]
    param(
        [string]$Name = ([guid]::NewGuid().ToString()), [Parameter(Mandatory)] [string]$DisplayName, [string]$Description,
        [string]$Direction = 'Inbound', [string]$Action = 'Allow', [string]$Profile = 'Any', [string]$Protocol = 'Any',
        [string[]]$LocalPort = @(), [string[]]$RemoteAddress = @(), [string]$Program, [string]$Enabled = 'True'
    )
    $rule = [ordered]@{
        Name = $Name; DisplayName = $DisplayName; Description = $Description; Direction = $Direction; Action = $Action
        Profile = $Profile; Protocol = $Protocol; LocalPort = $LocalPort; RemoteAddress = $RemoteAddress; Enabled = $Enabled
    }
    $null = New-Item -Path "$script:Rules\$Name" -Force
    $text = ConvertTo-Json -InputObject $rule -Compress
    $null = New-ItemProperty -LiteralPath "$script:Rules\$Name" -Name 'Rule' -PropertyType String -Value $text -Force
    if ($Action -eq 'Block') { Set-Block }
    Get-NetFirewallRule -Name $Name
}

function Disable-NetFirewallRule {
    [CmdletBinding()] param([Parameter(ValueFromPipeline)] [psobject]$InputObject, [string]$Name, [string]$DisplayName)
    process {
        $rules = if ($InputObject) { @($InputObject) } else {
            @(Get-NetFirewallRule | Where-Object -FilterScript { $_.Name -eq $Name -or $_.DisplayName -eq $DisplayName })
        }
        foreach ($rule in $rules) {
            $rule.Enabled = 'False'
            $text = ConvertTo-Json -InputObject $rule -Compress
            $null = New-ItemProperty -LiteralPath "$script:Rules\$($rule.Name)" -Name 'Rule' -PropertyType String -Value $text -Force
        }
        Set-Block
    }
}

function Remove-NetFirewallRule {
    [CmdletBinding()] param([Parameter(ValueFromPipeline)] [psobject]$InputObject, [string]$Name)
    process {
        $given = if ($InputObject) { $InputObject.Name } else { $Name }
        Remove-Item -LiteralPath "$script:Rules\$given" -Recurse -Force
        Set-Block
    }
}

function Get-NetFirewallPortFilter {
    [CmdletBinding()] param()
    Get-NetFirewallRule -ErrorAction SilentlyContinue | ForEach-Object -Process {
        [pscustomobject]@{ InstanceID = $_.Name; Protocol = $_.Protocol; LocalPort = $_.LocalPort }
    }
}

Export-ModuleMember -Function *-NetFirewall*
