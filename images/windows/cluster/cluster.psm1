<#
.SYNOPSIS
What the steps of a node on its way into a cluster share: the Host Networking Service, the bundle
medium, state and tasks.

.DESCRIPTION
Written for Windows PowerShell 5.1. HNS is called as microsoft/SDN's hns.psm1 does, by HNSCall of
vmcompute.dll, so that the requests are those that the host has decided on, byte for byte.
#>

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1')

$script:State = 'C:\hybridlab\state'
$script:HnsSource = @'
using System.Runtime.InteropServices;

namespace Hybridlab
{
    public static class Hns
    {
        [DllImport("vmcompute.dll", ExactSpelling = true)]
        private static extern void HNSCall(
            [MarshalAs(UnmanagedType.LPWStr)] string method,
            [MarshalAs(UnmanagedType.LPWStr)] string path,
            [MarshalAs(UnmanagedType.LPWStr)] string request,
            [MarshalAs(UnmanagedType.LPWStr)] out string response);

        public static string Call(string method, string path, string request)
        {
            string response;
            HNSCall(method, path, request, out response);
            return response;
        }
    }
}
'@

# ---- the Host Networking Service

function Invoke-Hns {
    <#
    .SYNOPSIS
    Asks HNS, and answers what it puts out; an error that it tells of is thrown.
    #>
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [ValidateSet('GET', 'POST', 'DELETE')] [string]$Method,
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Request
    )
    if (-not ('Hybridlab.Hns' -as [type])) {
        Add-Type -TypeDefinition $script:HnsSource
    }
    $text = [Hybridlab.Hns]::Call($Method, $Path, $Request)
    if (-not $text) {
        throw "HNS said nothing to $Method $Path"
    }
    $answer = ConvertFrom-Json -InputObject $text
    if (-not (Get-Part -Value $answer -Name 'Success')) {
        throw "HNS refused $Method ${Path}: $(Get-Part -Value $answer -Name 'Error')"
    }
    return Get-Part -Value $answer -Name 'Output'
}

function Get-Part {
    <#
    .SYNOPSIS
    A property of an object; $null where it has none of that name.
    #>
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [AllowNull()] [object]$Value,
        [Parameter(Mandatory)] [string]$Name
    )
    if ($null -eq $Value) {
        return $null
    }
    $found = $Value.PSObject.Properties[$Name]
    if ($null -eq $found) {
        return $null
    }
    return $found.Value
}

function Test-Hns {
    <#
    .SYNOPSIS
    Whether there is a Host Networking Service; without the feature Containers there is none.
    #>
    [CmdletBinding()]
    [OutputType([bool])]
    param()
    return [bool](Get-Service -Name 'hns' -ErrorAction SilentlyContinue)
}

function Get-HnsList {
    <#
    .SYNOPSIS
    All networks or endpoints.
    #>
    [CmdletBinding()]
    param([Parameter(Mandatory)] [ValidateSet('networks', 'endpoints')] [string]$Kind)
    if (-not (Test-Hns)) {
        return
    }
    Invoke-Hns -Method GET -Path "/$Kind" -Request '' | Where-Object -FilterScript { $_ }
}

function Get-Prefix {
    <#
    .SYNOPSIS
    The address prefix of an HNS network; empty where it has no subnet.
    #>
    [CmdletBinding()]
    [OutputType([string])]
    param([Parameter(Mandatory)] [psobject]$Network)
    $first = @(Get-Part -Value $Network -Name 'Subnets' | Where-Object -FilterScript { $_ }) |
        Select-Object -First 1
    return [string](Get-Part -Value $first -Name 'AddressPrefix')
}

function Find-Network {
    <#
    .SYNOPSIS
    The HNS network that is like the one that is wanted: name, type, prefix; $null if there is none.
    #>
    [CmdletBinding()]
    param([Parameter(Mandatory)] [psobject]$Wanted)
    foreach ($one in @(Get-HnsList -Kind networks)) {
        if ($one.Name -eq $Wanted.Name -and $one.Type -eq $Wanted.Type) {
            if ((Get-Prefix -Network $one) -eq (Get-Prefix -Network $Wanted)) {
                return $one
            }
        }
    }
    return $null
}

function Find-Endpoint {
    <#
    .SYNOPSIS
    The HNS endpoint of a network that is like the one that is wanted; $null if there is none.
    #>
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Wanted,
        [Parameter(Mandatory)] [string]$Network
    )
    foreach ($one in @(Get-HnsList -Kind endpoints)) {
        $address = [string](Get-Part -Value $one -Name 'IPAddress')
        if ($one.Name -eq $Wanted.Name -and $address -eq $Wanted.IPAddress) {
            if ([string]$one.VirtualNetwork -eq $Network) {
                return $one
            }
        }
    }
    return $null
}

function Test-Made {
    <#
    .SYNOPSIS
    Whether all networks and the endpoint that are wanted are there, and the host has its address.
    #>
    [CmdletBinding()]
    [OutputType([bool])]
    param([Parameter(Mandatory)] [psobject]$Given)
    $last = $null
    foreach ($text in $Given.networks) {
        $last = Find-Network -Wanted (ConvertFrom-Json -InputObject $text)
        if (-not $last) {
            return $false
        }
    }
    if (-not (Get-AddressIndex -Address $Given.address)) {
        return $false
    }
    if (-not $Given.endpoint) {
        return $true
    }
    $wanted = ConvertFrom-Json -InputObject $Given.endpoint
    if (-not (Find-Endpoint -Wanted $wanted -Network ([string]$last.ID))) {
        return $false
    }
    return [bool](Get-AddressIndex -Address $wanted.IPAddress)
}

# ---- addresses

function Get-AddressIndex {
    <#
    .SYNOPSIS
    Index of the interface that has an address; 0 where none has it.
    #>
    [CmdletBinding()]
    [OutputType([int])]
    param([Parameter(Mandatory)] [string]$Address)
    $found = @(Get-NetIPAddress -IPAddress $Address -AddressFamily IPv4 -ErrorAction SilentlyContinue)
    if ($found.Count -eq 0) {
        return 0
    }
    return [int]$found[0].InterfaceIndex
}

# ---- the bundle medium, tasks

function Find-Medium {
    <#
    .SYNOPSIS
    The root of the drive with a label ("D:\"); empty where there is none.
    #>
    [CmdletBinding()]
    [OutputType([string])]
    param([Parameter(Mandatory)] [string]$Label)
    foreach ($volume in @(Get-Volume)) {
        if ([string]$volume.FileSystemLabel -eq $Label -and $volume.DriveLetter) {
            return "$($volume.DriveLetter):\"
        }
    }
    return ''
}

function Get-MediumFile {
    <#
    .SYNOPSIS
    A file of the medium by its name there; refuses one that is not there.
    #>
    [CmdletBinding()]
    [OutputType([string])]
    param(
        [Parameter(Mandatory)] [string]$Label,
        [Parameter(Mandatory)] [string]$Name
    )
    $root = Find-Medium -Label $Label
    if (-not $root) {
        throw "no drive has the label '$Label': the bundle medium is not in"
    }
    $path = Join-Path -Path $root -ChildPath ($Name.Replace('/', '\'))
    if (-not (Test-Path -LiteralPath $path -PathType Leaf)) {
        throw "the bundle medium in '$root' has no '$Name'"
    }
    return $path
}

function Get-TaskState {
    <#
    .SYNOPSIS
    The state of a task of ours; empty where there is none of that name.
    #>
    [CmdletBinding()]
    [OutputType([string])]
    param([Parameter(Mandatory)] [string]$Name)
    $found = @(Get-ScheduledTask -TaskName "hybridlab-$Name" -ErrorAction SilentlyContinue)
    if ($found.Count -eq 0) {
        return ''
    }
    return [string]$found[0].State
}

function Get-StatePath {
    <#
    .SYNOPSIS
    Where something is noted from one run to the next.
    #>
    [CmdletBinding()]
    [OutputType([string])]
    param([Parameter(Mandatory)] [ValidatePattern('^[a-z0-9.-]+$')] [string]$Name)
    $null = New-Item -Path $script:State -ItemType Directory -Force
    return Join-Path -Path $script:State -ChildPath $Name
}

function Get-Digest {
    <#
    .SYNOPSIS
    One digest of texts and of what files hold; a file that is not there counts as empty.
    #>
    [CmdletBinding()]
    [OutputType([string])]
    param(
        [Parameter(Mandatory)] [AllowEmptyString()] [AllowEmptyCollection()] [string[]]$Text,
        [Parameter(Mandatory)] [AllowEmptyCollection()] [string[]]$File
    )
    $held = @($File | ForEach-Object -Process {
            if (Test-Path -LiteralPath $_ -PathType Leaf) {
                (Get-FileHash -LiteralPath $_ -Algorithm SHA256).Hash
            } else {
                'none'
            }
        })
    $whole = (@($Text) + $held) -join "`n"
    return Get-Sha256 -Bytes ([System.Text.Encoding]::UTF8.GetBytes($whole))
}

Export-ModuleMember -Function '*'
