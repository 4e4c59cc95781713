# The first logon of a clone: gives a copy of a golden image its identity.
# The answer file runs it from the root of the clone's medium. The answer file sets computer name
# and password, sysprep the new SID: this script checks name and SID. Reports each step on COM1;
# opens the ports last and reports "phase ready". Log: C:\hybridlab\log\clone.log.
[CmdletBinding()]
param([string]$Settings = (Join-Path -Path $PSScriptRoot -ChildPath 'clone.json'))

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

$shape = @{
    computer_name = 'string'
    authorized_key = 'string'
    management_address = 'string'
    cards = 'object[]'
    time_server = 'string?'
    region = 'object'
}

$cardShape = @{
    name = 'string'
    mac = 'string'
    address = 'string?'
    gateway = 'string?'
    dns = 'string[]'
    mtu = 'int?'
}

$regionShape = @{
    locale = 'string'
    keyboard = 'string'
    time_zone = 'string'
}

function Get-Mac {
    # A MAC address as twelve hex digits, from any notation.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [AllowEmptyString()] [string]$Text)
    return ($Text -replace '[^0-9A-Fa-f]', '').ToUpperInvariant()
}

function Get-Adapter {
    # The network adapter with a MAC address that is not a virtual switch's; $null if there is none.
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Mac)
    $wanted = Get-Mac -Text $Mac
    return Get-NetAdapter -ErrorAction SilentlyContinue |
        Where-Object -FilterScript { (Get-Mac -Text "$($_.MacAddress)") -eq $wanted -and $_.Name -notlike 'vEthernet*' } |
        Select-Object -First 1
}

function Set-AdapterName {
    # Names adapters by their MAC addresses; an adapter with another's name is renamed first.
    [CmdletBinding()] param([Parameter(Mandatory)] [psobject[]]$Card)
    foreach ($one in $Card) {
        $mac = Get-Mac -Text $one.mac
        $holder = Get-NetAdapter -Name $one.name -IncludeHidden -ErrorAction SilentlyContinue
        if ($holder -and (Get-Mac -Text "$($holder.MacAddress)") -ne $mac) {
            Rename-NetAdapter -InputObject $holder -NewName "was-$($one.name)-$($holder.ifIndex)"
        }
        $adapter = Get-Adapter -Mac $one.mac
        if ($adapter.Name -cne $one.name) {
            Rename-NetAdapter -InputObject $adapter -NewName $one.name
        }
    }
}

function Set-Address {
    # Gives an interface its only IPv4 address and its gateway, or leaves both to DHCP.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [int]$Index,
        [Parameter(Mandatory)] [psobject]$Card
    )
    $ip = @{ InterfaceIndex = $Index; AddressFamily = 'IPv4' }
    if (-not $Card.address) {
        # What DHCP sets (a default route, too) ranks below the settings of other interfaces.
        Set-NetIPInterface @ip -Dhcp Enabled -InterfaceMetric 500
        return
    }
    $address, $length = $Card.address -split '/'
    Set-NetIPInterface @ip -Dhcp Disabled
    # Addresses that are not manual disappear by themselves.
    $stale = @(Get-NetIPAddress @ip -ErrorAction SilentlyContinue | Where-Object -FilterScript {
            [string]$_.PrefixOrigin -eq 'Manual' -and "$($_.IPAddress)/$($_.PrefixLength)" -ne $Card.address
        })
    $stale | Remove-NetIPAddress -Confirm:$false
    if (-not (Get-NetIPAddress @ip -IPAddress $address -ErrorAction SilentlyContinue)) {
        $null = New-NetIPAddress @ip -IPAddress $address -PrefixLength ([int]$length)
    }
    Set-Gateway -Index $Index -Gateway $Card.gateway
}

function Set-Gateway {
    # Gives an interface its default route, or none; removes another one.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [int]$Index,
        [Parameter(Mandatory)] [AllowNull()] [AllowEmptyString()] [string]$Gateway
    )
    $route = @{ InterfaceIndex = $Index; DestinationPrefix = '0.0.0.0/0' }
    $there = @(Get-NetRoute @route -ErrorAction SilentlyContinue)
    $there | Where-Object -FilterScript { $_.NextHop -ne $Gateway } | Remove-NetRoute -Confirm:$false
    $right = @($there | Where-Object -FilterScript { $_.NextHop -eq $Gateway })
    if ($Gateway -and $right.Count -eq 0) {
        $null = New-NetRoute @route -NextHop $Gateway
    }
}

function Set-Resolver {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [int]$Index,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$Server
    )
    if ($Server.Count -eq 0) {
        Set-DnsClientServerAddress -InterfaceIndex $Index -ResetServerAddresses
    } else {
        Set-DnsClientServerAddress -InterfaceIndex $Index -ServerAddresses $Server
    }
}

$steps = [ordered]@{
    'ports' = {
        Close-Port
    }
    'identity' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        Confirm-Shape -Value $Given.region -Shape $regionShape -Where 'region'
        foreach ($card in $Given.cards) {
            Confirm-Shape -Value $card -Shape $cardShape -Where 'cards'
        }
        if ($env:COMPUTERNAME -ne $Given.computer_name) {
            throw "the computer is called $env:COMPUTERNAME, not $($Given.computer_name): the answer file was not obeyed"
        }
        $sid = Get-MachineSid
        Write-Log -Message "machine SID $sid"
        if (Test-Path -LiteralPath 'C:\hybridlab\golden.sid' -PathType Leaf) {
            if ([System.IO.File]::ReadAllText('C:\hybridlab\golden.sid').Trim() -eq $sid) {
                throw "the machine SID $sid is the golden image's own: it was not generalized"
            }
        }
        Get-Administrator | Set-LocalUser -PasswordNeverExpires $true
        $null = Remove-Task -Name 'sysprep'
    }
    'cards' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        Wait-Until -What 'the network cards' -Seconds 180 -Condition {
            $missing = @($Given.cards | Where-Object -FilterScript { -not (Get-Adapter -Mac $_.mac) })
            if ($missing.Count -eq 0) {
                return $true
            }
            $there = @(Get-NetAdapter -ErrorAction SilentlyContinue | ForEach-Object -Process { $_.MacAddress })
            return "$(($missing | ForEach-Object -Process { $_.mac }) -join ', ') missing; there are $($there -join ', ')"
        }
        Set-AdapterName -Card $Given.cards
        foreach ($card in $Given.cards) {
            $index = [int](Get-Adapter -Mac $card.mac).ifIndex
            Set-Address -Index $index -Card $card
            Set-Resolver -Index $index -Server @($card.dns)
            if ($card.mtu) {
                Set-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4 -NlMtuBytes $card.mtu
            }
        }
    }
    'time' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        $null = Set-Zone -Id $Given.region.time_zone
        if ($Given.time_server) {
            $null = Set-TimeServer -Server $Given.time_server
        }
    }
    'host-keys' = {
        if (-not (Test-Done -Name 'host-keys')) {
            Reset-HostKey
            Set-Done -Name 'host-keys'
        }
    }
    'openssh' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        $null = Set-OpenSsh -AuthorizedKey $Given.authorized_key
    }
    'winrm' = {
        param([Parameter(Mandatory)] [psobject]$Given)
        Enable-WinRm -Address $Given.management_address -TimeoutMs 1800000
    }
    'autologon' = {
        # A run that continues after a reboot runs as SYSTEM: nobody has to log on again.
        $null = Disable-Autologon
    }
    'answer-files' = {
        $null = Remove-AnswerFile
    }
}

exit (Invoke-FirstLogon -Name 'clone' -Script $PSCommandPath -Settings $Settings -Shape $shape -Steps $steps)
