# AddRoutes: makes the host's routes to other nodes' pods exactly these; other routes are left
# alone.
# The lab's routes are recorded, so that an obsolete one is removed. They survive a restart. Facts:
# added, removed.
[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'cluster.psm1') -Force

$shape = @{
    address = 'string'
    routes = 'object[]'
}

$routeShape = @{
    destination = 'string'
    via = 'string'
}

function Get-Noted {
    # Destinations of the routes that an earlier run has added.
    [CmdletBinding()] [OutputType([string[]])] param([Parameter(Mandatory)] [string]$Path)
    if (-not (Test-Path -LiteralPath $Path -PathType Leaf)) {
        return @()
    }
    return @([System.IO.File]::ReadAllText($Path) -split "`n" | Where-Object -FilterScript { $_ -ne '' })
}

function Set-Route {
    # Makes one route the only one to its destination on the interface; returns whether it was not.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [psobject]$Route,
        [Parameter(Mandatory)] [int]$Index
    )
    $there = @(Get-NetRoute -DestinationPrefix $Route.destination -ErrorAction SilentlyContinue)
    $right = @($there | Where-Object -FilterScript {
            $_.NextHop -eq $Route.via -and $_.InterfaceIndex -eq $Index
        })
    $wrong = @($there | Where-Object -FilterScript { $_.NextHop -ne $Route.via })
    $wrong | Remove-NetRoute -Confirm:$false
    if ($right.Count -gt 0) {
        return $wrong.Count -gt 0
    }
    $null = New-NetRoute -InterfaceIndex $Index -DestinationPrefix $Route.destination -NextHop $Route.via
    return $true
}

exit (Invoke-Step -Name 'node-routes' -Settings $Settings -Shape $shape -Body {
        param([Parameter(Mandatory)] [psobject]$Given, [Parameter(Mandatory)] [psobject]$Result)
        $index = Get-AddressIndex -Address $Given.address
        if (-not $index) {
            throw "no interface has the address $($Given.address)"
        }
        foreach ($route in $Given.routes) {
            Confirm-Shape -Value $route -Shape $routeShape -Where 'routes'
        }
        $wanted = @($Given.routes | ForEach-Object -Process { [string]$_.destination })
        $file = Get-StatePath -Name 'routes'
        $removed = @(Get-Noted -Path $file | Where-Object -FilterScript { $wanted -notcontains $_ })
        foreach ($one in $removed) {
            Get-NetRoute -DestinationPrefix $one -ErrorAction SilentlyContinue | Remove-NetRoute -Confirm:$false
        }
        $null = Set-TextFile -Path $file -Text ($wanted -join "`n")
        $added = @($Given.routes | Where-Object -FilterScript { Set-Route -Route $_ -Index $index })
        $Result.Changed = $added.Count + $removed.Count -gt 0
        $Result.Facts = @{
            added = @($added | ForEach-Object -Process { [string]$_.destination })
            removed = $removed
        }
    })
