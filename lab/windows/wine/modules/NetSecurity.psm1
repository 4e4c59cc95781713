# NetSecurity on a Wine node: rules are kept in the registry. Linux lets all packets in, as Windows
# does with the rules that the lab makes; no firewall of Windows stands in.

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
    Get-NetFirewallRule -Name $Name
}

function Remove-NetFirewallRule {
    [CmdletBinding()] param([Parameter(ValueFromPipeline)] [psobject]$InputObject, [string]$Name)
    process {
        $given = if ($InputObject) { $InputObject.Name } else { $Name }
        Remove-Item -LiteralPath "$script:Rules\$given" -Recurse -Force
    }
}

function Get-NetFirewallPortFilter {
    [CmdletBinding()] param()
    Get-NetFirewallRule -ErrorAction SilentlyContinue | ForEach-Object -Process {
        [pscustomobject]@{ InstanceID = $_.Name; Protocol = $_.Protocol; LocalPort = $_.LocalPort }
    }
}

Export-ModuleMember -Function *-NetFirewall*
