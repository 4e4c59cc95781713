<#
.SYNOPSIS
Makes HNS networks and the node's own endpoint; run by a task, since the link drops meanwhile.

.DESCRIPTION
What it comes to is noted in state\hns-make.result, for hns-state to tell. The address of the
adapter is noted before, and put back where Windows loses it on the way to the virtual switch
(sig-windows-tools 162). Facts: networks, endpoint.
#>
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    address = 'string'
    networks = 'string[]'
    endpoint = 'string?'
    attachment = 'string'
    settle_seconds = 'int'
}

function Get-Card {
    <#
    .SYNOPSIS
    What of the node's card must outlive the making: noted at the first run, and read at later ones.
    #>
    [CmdletBinding()]
    [OutputType([psobject])]
    param([Parameter(Mandatory)] [string]$Address)
    $file = Get-StatePath -Name 'card.json'
    $index = Get-AddressIndex -Address $Address
    if ($index) {
        $adapter = Get-NetAdapter -IncludeHidden | Where-Object -FilterScript { $_.InterfaceIndex -eq $index }
        $read = Get-NetIPAddress -IPAddress $Address -AddressFamily IPv4
        $default = @(Get-NetRoute -InterfaceIndex $index -DestinationPrefix '0.0.0.0/0' -ErrorAction SilentlyContinue)
        $gateway = if ($default.Count -gt 0) { [string]$default[0].NextHop } else { '' }
        $card = [ordered]@{
            name = [string]$adapter.Name
            mac = [string]$adapter.MacAddress
            address = $Address
            length = [int]$read.PrefixLength
            gateway = $gateway
        }
        if (-not ([string]$adapter.Name).StartsWith('vEthernet')) {
            $null = Set-TextFile -Path $file -Text (ConvertTo-AsciiJson -Value $card)
        }
    }
    if (-not (Test-Path -LiteralPath $file -PathType Leaf)) {
        throw "no interface has the address $Address"
    }
    $noted = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($file))
    if ($noted.address -ne $Address) {
        throw "the card that was noted had the address $($noted.address), not $Address"
    }
    return $noted
}

function Get-VirtualAdapter {
    <#
    .SYNOPSIS
    The virtual adapters that have taken the card's place: it is in a virtual switch.
    #>
    [CmdletBinding()]
    param([Parameter(Mandatory)] [psobject]$Card)
    Get-NetAdapter -IncludeHidden | Where-Object -FilterScript {
        $_.MacAddress -eq $Card.mac -and ([string]$_.Name).StartsWith('vEthernet')
    }
}

function Restore-Address {
    <#
    .SYNOPSIS
    Waits for the node's address, and puts it on the virtual adapter where it does not come back.
    #>
    [CmdletBinding()]
    param([Parameter(Mandatory)] [psobject]$Card)
    foreach ($try in 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) {
        if (Get-AddressIndex -Address $Card.address) {
            return
        }
        Write-Log -Message "$($Card.address) is on no interface, look $try of 10"
        Start-Sleep -Seconds 2
    }
    $virtual = @(Get-VirtualAdapter -Card $Card)
    if ($virtual.Count -eq 0) {
        throw "$($Card.address) is lost, and no virtual adapter has the MAC $($Card.mac)"
    }
    $index = [int]$virtual[0].InterfaceIndex
    $null = New-NetIPAddress -InterfaceIndex $index -AddressFamily IPv4 -IPAddress $Card.address -PrefixLength $Card.length
    if ($Card.gateway) {
        $null = New-NetRoute -InterfaceIndex $index -DestinationPrefix '0.0.0.0/0' -NextHop $Card.gateway
    }
}

function Add-Network {
    <#
    .SYNOPSIS
    The HNS network that is wanted, made if it is not there; another of its name goes.
    #>
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [psobject]$Card
    )
    $there = Find-Network -Wanted $Wanted
    if ($there) {
        return $there
    }
    foreach ($old in @(Get-HnsList -Kind networks | Where-Object -FilterScript { $_.Name -eq $Wanted.Name })) {
        $null = Invoke-Hns -Method DELETE -Path "/networks/$($old.ID)" -Request ''
        Restore-Address -Card $Card
    }
    # HNS refuses a card that is in a virtual switch already; without a name it takes that switch.
    if (-not (Get-VirtualAdapter -Card $Card)) {
        $Wanted | Add-Member -MemberType NoteProperty -Name 'NetworkAdapterName' -Value $Card.name
    }
    $request = ConvertTo-Json -InputObject $Wanted -Compress -Depth 6
    Write-Log -Message "POST /networks $request"
    $null = Invoke-Hns -Method POST -Path '/networks' -Request $request
    Wait-Until -What "HNS network '$($Wanted.Name)'" -Seconds 60 -Condition {
        if (Find-Network -Wanted $Wanted) {
            return $true
        }
        return "networks $(@(Get-HnsList -Kind networks | ForEach-Object -Process { $_.Name }) -join ', ')"
    }
    Restore-Address -Card $Card
    return Find-Network -Wanted $Wanted
}

function Add-HostEndpoint {
    <#
    .SYNOPSIS
    Makes the node's own endpoint, makes it one of the host, and has the host route for it.
    #>
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [string]$Network,
        [Parameter(Mandatory)] [string]$Attachment
    )
    $there = Find-Endpoint -Wanted $Wanted -Network $Network
    if (-not $there) {
        foreach ($old in @(Get-HnsList -Kind endpoints | Where-Object -FilterScript { $_.Name -eq $Wanted.Name })) {
            $null = Invoke-Hns -Method DELETE -Path "/endpoints/$($old.ID)" -Request ''
        }
        $Wanted | Add-Member -MemberType NoteProperty -Name 'VirtualNetwork' -Value $Network
        $request = ConvertTo-Json -InputObject $Wanted -Compress -Depth 6
        Write-Log -Message "POST /endpoints $request"
        $null = Invoke-Hns -Method POST -Path '/endpoints' -Request $request
        $there = Find-Endpoint -Wanted $Wanted -Network $Network
    }
    if (-not (Get-AddressIndex -Address $Wanted.IPAddress)) {
        $null = Invoke-Hns -Method POST -Path "/endpoints/$($there.ID)/attach" -Request $Attachment
    }
    Wait-Until -What "the host to have $($Wanted.IPAddress)" -Seconds 60 -Condition {
        if (Get-AddressIndex -Address $Wanted.IPAddress) {
            return $true
        }
        return "endpoint '$($Wanted.Name)' is there, and no interface has its address"
    }
    $index = Get-AddressIndex -Address $Wanted.IPAddress
    Set-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4 -Forwarding Enabled
}

function Invoke-Making {
    <#
    .SYNOPSIS
    Makes all of it; answers whether something was missing.
    #>
    [CmdletBinding()]
    [OutputType([bool])]
    param([Parameter(Mandatory)] [psobject]$Given)
    $card = Get-Card -Address $Given.address
    if (Test-Made -Given $Given) {
        return $false
    }
    Start-Sleep -Seconds $Given.settle_seconds
    $last = $null
    foreach ($text in $Given.networks) {
        $last = Add-Network -Wanted (ConvertFrom-Json -InputObject $text) -Card $card
    }
    Restore-Address -Card $card
    if ($Given.endpoint) {
        $wanted = ConvertFrom-Json -InputObject $Given.endpoint
        Add-HostEndpoint -Wanted $wanted -Network ([string]$last.ID) -Attachment $Given.attachment
    }
    return $true
}

exit (Invoke-Step -Name 'hns-make' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $note = Get-StatePath -Name 'hns-make.result'
        try {
            $Result.Changed = Invoke-Making -Given $Given
            $null = Set-TextFile -Path $note -Text (ConvertTo-AsciiJson -Value @{ done = $true; error = '' })
        } catch {
            $null = Set-TextFile -Path $note -Text (ConvertTo-AsciiJson -Value @{ done = $true; error = "$_" })
            throw
        }
        $Result.Facts = @{ networks = @($Given.networks).Count; endpoint = [bool]$Given.endpoint }
    })
