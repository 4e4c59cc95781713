# Shared functions of this folder's scripts: the serial console, settings, results, and the parts of
# Windows that several of them configure.
# Written for Windows PowerShell 5.1. Every function can run twice; those that change something
# return whether they did.

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$script:Root = 'C:\hybridlab'
$script:LogFolder = 'C:\hybridlab\log'
$script:StateFolder = 'C:\hybridlab\state'
$script:LogName = 'hybridlab'
$script:CertificateName = 'hybridlab WinRM'
$script:SshPort = 22
$script:WinRmPort = 5986
$script:Round = ''
$script:Administrators = 'S-1-5-32-544'
$script:System = 'S-1-5-18'
$script:WinLogon = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon'
$script:Policies = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System'

# ---- the serial console and the log

function Write-Log {
    # Adds a line to the log; a log that cannot be written is ignored.
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Message)
    $line = '{0} {1}' -f (Get-Date).ToUniversalTime().ToString('yyyy-MM-ddTHH:mm:ssZ'), $Message
    try {
        $null = New-Item -Path $script:LogFolder -ItemType Directory -Force
        $file = Join-Path -Path $script:LogFolder -ChildPath "$($script:LogName).log"
        Add-Content -LiteralPath $file -Value $line -Encoding Ascii
    } catch {
        [Console]::Error.WriteLine($line)
    }
}

function ConvertTo-Plain {
    # A text as one line of characters that are harmless in cmd.exe, at most 300 of them.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [AllowEmptyString()] [string]$Text)
    $plain = [regex]::Replace($Text, '[^A-Za-z0-9 _.,:;=+/\\@#*?\[\]{}$~''-]+', ' ')
    $plain = [regex]::Replace($plain, ' +', ' ').Trim()
    if ($plain -eq '') {
        return 'nothing was said'
    }
    return $plain.Substring(0, [Math]::Min(300, $plain.Length))
}

function Write-Line {
    # Writes one line to the first serial port; a port that is busy or missing is ignored.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [ValidateSet('phase', 'step', 'failed', 'key', 'certificate')]
        [string]$Word,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Rest
    )
    $line = 'hybridlab: {0} {1}' -f $Word, (ConvertTo-Plain -Text $Rest)
    Write-Log -Message $line
    # The redirection comes first: a digit before ">" would be read as the number of a stream.
    $arguments = @('/d', '/s', '/c', ">COM1 echo $line")
    foreach ($try in 1, 2, 3, 4, 5) {
        try {
            $null = Invoke-Native -Path "$env:SystemRoot\System32\cmd.exe" -Arguments $arguments
            return
        } catch {
            Write-Log -Message "COM1 did not take it, try $try of 5: $_"
            Start-Sleep -Milliseconds 400
        }
    }
}

function Write-Phase {
    [CmdletBinding()] param([Parameter(Mandatory)] [ValidateSet('sysprep', 'ready')] [string]$Name)
    Write-Line -Word 'phase' -Rest $Name
}

function Write-Step {
    [CmdletBinding()] param([Parameter(Mandatory)] [ValidatePattern('^[a-z0-9-]+$')] [string]$Name)
    Write-Line -Word 'step' -Rest $Name
}

function Write-Failure {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [ValidatePattern('^[a-z0-9-]+$')] [string]$Name,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Message
    )
    Write-Line -Word 'failed' -Rest "${Name}: $(ConvertTo-Plain -Text $Message)"
}

# ---- programs, waiting, the registry, files

function Invoke-Native {
    # Runs a program to its end and checks its exit code.
    # Returns Code and Output (lines of standard output). Arguments must not contain double quotes,
    # which Windows PowerShell passes on unescaped, nor secrets.
    [CmdletBinding()] [OutputType([pscustomobject])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [string[]]$Arguments = @(),
        [int[]]$Accept = @(0)
    )
    if (-not (Get-Command -Name $Path -CommandType Application -ErrorAction SilentlyContinue)) {
        throw "there is no program '$Path'"
    }
    $global:LASTEXITCODE = -1
    # With "Stop" the first line that the program writes to standard error would end this script.
    $ErrorActionPreference = 'Continue'
    $said = @(& $Path @Arguments 2>&1)
    $code = $LASTEXITCODE
    $ErrorActionPreference = 'Stop'
    if ($Accept -notcontains $code) {
        $lines = $said | ForEach-Object -Process { "$_".Trim() }
        $last = ($lines | Where-Object -FilterScript { $_ -ne '' } | Select-Object -Last 5) -join '; '
        throw "'$Path' ended with exit code ${code}: $last"
    }
    $output = $said | Where-Object -FilterScript { $_ -isnot [System.Management.Automation.ErrorRecord] }
    return [pscustomobject]@{ Code = $code; Output = @($output | ForEach-Object -Process { "$_" }) }
}

function Wait-Until {
    # Waits until a condition returns $true; until then it returns what it sees.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [string]$What,
        [Parameter(Mandatory)] [int]$Seconds,
        [Parameter(Mandatory)] [scriptblock]$Condition
    )
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        $seen = & $Condition
        if ($seen -is [bool] -and $seen) {
            return
        }
        if ($clock.Elapsed.TotalSeconds -ge $Seconds) {
            throw "waited $Seconds s for ${What}; last seen: $seen"
        }
        Start-Sleep -Milliseconds 500
    }
}

function Set-RegistryValue {
    # Sets a value of the registry; returns whether it differed before.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [string]$Name,
        [Parameter(Mandatory)] [ValidateSet('DWord', 'String', 'MultiString')] [string]$Kind,
        [Parameter(Mandatory)] [AllowEmptyString()] [object]$Value
    )
    if (-not (Test-Path -LiteralPath $Path)) {
        $null = New-Item -Path $Path -Force
    }
    $key = Get-Item -LiteralPath $Path
    if ($key.GetValueNames() -contains $Name) {
        $there = @($key.GetValue($Name)) -join "`n"
        if ([string]$key.GetValueKind($Name) -eq $Kind -and $there -ceq (@($Value) -join "`n")) {
            return $false
        }
    }
    $null = New-ItemProperty -LiteralPath $Path -Name $Name -PropertyType $Kind -Value $Value -Force
    return $true
}

function Remove-RegistryValue {
    # Removes a value of the registry; returns whether it existed.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [string]$Name
    )
    if (-not (Test-Path -LiteralPath $Path)) {
        return $false
    }
    if ((Get-Item -LiteralPath $Path).GetValueNames() -notcontains $Name) {
        return $false
    }
    Remove-ItemProperty -LiteralPath $Path -Name $Name -Force
    return $true
}

function Set-TextFile {
    # Writes an ASCII file; returns whether it differed before.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [AllowEmptyString()] [string]$Text
    )
    if (Test-Path -LiteralPath $Path -PathType Leaf) {
        if ([System.IO.File]::ReadAllText($Path) -ceq $Text) {
            return $false
        }
    }
    $null = New-Item -Path (Split-Path -Path $Path -Parent) -ItemType Directory -Force
    [System.IO.File]::WriteAllText($Path, $Text, [System.Text.Encoding]::ASCII)
    return $true
}

function Remove-IfThere {
    # Removes files and folders; returns whether any existed.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [string[]]$Path)
    $found = @($Path | Where-Object -FilterScript { Test-Path -LiteralPath $_ })
    foreach ($one in $found) {
        Remove-Item -LiteralPath $one -Recurse -Force
    }
    return $found.Count -gt 0
}

function Find-OnDrives {
    # The first file or folder of that name in the root of any drive; $null if there is none.
    [CmdletBinding()] [OutputType([string])]
    param(
        [Parameter(Mandatory)] [string]$Name,
        [ValidateSet('Leaf', 'Container')] [string]$Kind = 'Leaf'
    )
    foreach ($drive in Get-PSDrive -PSProvider FileSystem) {
        $path = Join-Path -Path $drive.Root -ChildPath $Name -ErrorAction SilentlyContinue
        if ($path -and (Test-Path -LiteralPath $path -PathType $Kind)) {
            return $path
        }
    }
    return $null
}

function Protect-Path {
    # Restricts a file or folder to Administrators and SYSTEM, without inherited rights.
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Path)
    $folder = Test-Path -LiteralPath $Path -PathType Container
    $kind = if ($folder) { 'DirectorySecurity' } else { 'FileSecurity' }
    $flags = if ($folder) { 'ContainerInherit, ObjectInherit' } else { 'None' }
    $security = New-Object -TypeName "System.Security.AccessControl.$kind"
    $security.SetAccessRuleProtection($true, $false)
    foreach ($sid in @($script:Administrators, $script:System)) {
        $who = New-Object -TypeName 'System.Security.Principal.SecurityIdentifier' -ArgumentList $sid
        $rule = New-Object -TypeName 'System.Security.AccessControl.FileSystemAccessRule' -ArgumentList @(
            $who, 'FullControl', $flags, 'None', 'Allow')
        $security.AddAccessRule($rule)
    }
    Set-Acl -LiteralPath $Path -AclObject $security
}

function Get-Sha256 {
    # SHA-256 of bytes, as 64 hex digits in lower case.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [byte[]]$Bytes)
    $digest = [System.Security.Cryptography.SHA256]::Create().ComputeHash($Bytes)
    return [System.BitConverter]::ToString($digest).Replace('-', '').ToLowerInvariant()
}

function Confirm-Sha256 {
    # Refuses a file that does not exist or has another SHA-256.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [ValidatePattern('^[0-9a-f]{64}$')] [string]$Digest
    )
    if (-not (Test-Path -LiteralPath $Path -PathType Leaf)) {
        throw "there is no file '$Path'"
    }
    $there = (Get-FileHash -LiteralPath $Path -Algorithm SHA256).Hash.ToLowerInvariant()
    if ($there -cne $Digest) {
        throw "'$Path' has the SHA-256 $there, not $Digest"
    }
}

# ---- settings and results

function Test-Kind {
    # Whether a value read from JSON is of a kind: string, int, bool, object, each also as "kind[]"
    # (a list) and, except for lists, as "kind?" (may be null).
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [AllowNull()] [AllowEmptyString()] [AllowEmptyCollection()]
        [object]$Value,
        [Parameter(Mandatory)] [string]$Kind
    )
    if ($Kind.EndsWith('[]')) {
        if ($Value -isnot [array]) {
            return $false
        }
        $item = $Kind.Substring(0, $Kind.Length - 2)
        foreach ($one in $Value) {
            if (-not (Test-Kind -Value $one -Kind $item)) {
                return $false
            }
        }
        return $true
    }
    if ($Kind.EndsWith('?')) {
        return $null -eq $Value -or (Test-Kind -Value $Value -Kind ($Kind.TrimEnd('?')))
    }
    switch ($Kind) {
        'string' { return $Value -is [string] }
        'int' { return $Value -is [int] -or $Value -is [long] }
        'bool' { return $Value -is [bool] }
        'object' { return $Value -is [System.Management.Automation.PSCustomObject] }
    }
    throw "'$Kind' is no kind of setting"
}

function Confirm-Shape {
    # Refuses an object whose keys are not exactly those of a shape, each of its kind.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [psobject]$Value,
        [Parameter(Mandatory)] [hashtable]$Shape,
        [Parameter(Mandatory)] [string]$Where
    )
    $there = @($Value.PSObject.Properties | ForEach-Object -Process { $_.Name })
    foreach ($name in $there) {
        if (-not $Shape.ContainsKey($name)) {
            throw "${Where}: nobody reads '$name'"
        }
    }
    foreach ($name in $Shape.Keys) {
        if ($there -cnotcontains $name) {
            throw "${Where}: '$name' is missing"
        }
        if (-not (Test-Kind -Value $Value.$name -Kind $Shape[$name])) {
            throw "${Where}: '$name' is no $($Shape[$name])"
        }
    }
}

function Read-Settings {
    # The settings in a JSON file, checked against their shape.
    [CmdletBinding()] [OutputType([psobject])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [hashtable]$Shape
    )
    if (-not (Test-Path -LiteralPath $Path -PathType Leaf)) {
        throw "there are no settings '$Path'"
    }
    $full = (Resolve-Path -LiteralPath $Path).ProviderPath
    $read = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($full))
    Confirm-Shape -Value $read -Shape $Shape -Where $Path
    return $read
}

function ConvertTo-AsciiJson {
    # JSON on one line in pure ASCII, independent of the console's code page.
    [CmdletBinding()] [OutputType([string])] param([Parameter(Mandatory)] [object]$Value)
    $json = ConvertTo-Json -InputObject $Value -Compress -Depth 6
    return [regex]::Replace($json, '[^\x20-\x7e]', {
            param([System.Text.RegularExpressions.Match]$match)
            '\u{0:x4}' -f [int][char]$match.Value
        })
}

function Invoke-Step {
    # Runs a step that was requested over a shell, and returns the exit code of its script. The body
    # gets the settings and a result to fill in: Changed, Reboot, Facts. Its output is dropped. The
    # last line of standard output is the result as JSON.
    [CmdletBinding()] [OutputType([int])]
    param(
        [Parameter(Mandatory)] [ValidatePattern('^[a-z0-9-]+$')] [string]$Name,
        [Parameter(Mandatory)] [string]$Settings,
        [Parameter(Mandatory)] [hashtable]$Shape,
        [Parameter(Mandatory)] [scriptblock]$Body
    )
    $script:LogName = $Name
    Write-Log -Message 'begins'
    $result = [pscustomobject]@{ Changed = $false; Reboot = $false; Facts = @{} }
    try {
        $given = Read-Settings -Path $Settings -Shape $Shape
        $null = & $Body $given $result
    } catch {
        Write-Log -Message "failed: $_ $($_.ScriptStackTrace)"
        [Console]::Out.WriteLine((ConvertTo-AsciiJson -Value ([ordered]@{ step = $Name; error = "$_" })))
        return 1
    }
    return Complete-Step -Name $Name -Result $result
}

function Complete-Step {
    # Writes the result of a step as the last line of standard output; returns the exit code.
    [CmdletBinding()] [OutputType([int])]
    param(
        [Parameter(Mandatory)] [string]$Name,
        [Parameter(Mandatory)] [psobject]$Result
    )
    $told = [ordered]@{
        step = $Name
        changed = [bool]$Result.Changed
        reboot = [bool]$Result.Reboot
        facts = $Result.Facts
    }
    $json = ConvertTo-AsciiJson -Value $told
    Write-Log -Message $json
    [Console]::Out.WriteLine($json)
    if ($Result.Reboot) {
        return 3010
    }
    return 0
}

# ---- first logons: an installation's and a clone's

function Test-Done {
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [string]$Name)
    $file = Join-Path -Path $script:StateFolder -ChildPath $Name
    if (-not (Test-Path -LiteralPath $file -PathType Leaf)) {
        return $false
    }
    return [System.IO.File]::ReadAllText($file) -ceq $script:Round
}

function Set-Done {
    # Records that something is done for these settings, so that a second run skips it.
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Name)
    $null = Set-TextFile -Path (Join-Path -Path $script:StateFolder -ChildPath $Name) -Text $script:Round
}

function Copy-Here {
    # Copies a script and the files beside it to C:\hybridlab, so that it can continue after a
    # reboot without the medium.
    [CmdletBinding()] [OutputType([string])]
    param(
        [Parameter(Mandatory)] [string]$Script,
        [Parameter(Mandatory)] [string]$Settings
    )
    $folder = Split-Path -Path $Script -Parent
    if ($folder.TrimEnd('\') -ne $script:Root) {
        $beside = @('hybridlab.psm1', 'openssh.zip') | ForEach-Object -Process {
            Join-Path -Path $folder -ChildPath $_
        }
        foreach ($path in @($Script, $Settings) + $beside) {
            if (Test-Path -LiteralPath $path -PathType Leaf) {
                $target = Join-Path -Path $script:Root -ChildPath (Split-Path -Path $path -Leaf)
                [System.IO.File]::WriteAllBytes($target, [System.IO.File]::ReadAllBytes($path))
            }
        }
    }
    return Join-Path -Path $script:Root -ChildPath (Split-Path -Path $Script -Leaf)
}

function Register-Resumption {
    # Runs a script again at the next starts of Windows until it has finished.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [string]$Name,
        [Parameter(Mandatory)] [string]$Script
    )
    $action = New-PowerShellAction -Arguments "-File $Script"
    $trigger = New-ScheduledTaskTrigger -AtStartup
    $as = New-ScheduledTaskPrincipal -UserId $script:System -LogonType ServiceAccount -RunLevel Highest
    $null = Register-ScheduledTask -TaskName "hybridlab-$Name" -Action $action -Trigger $trigger -Principal $as -Force
}

function Remove-Task {
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [string]$Name)
    $found = @(Get-ScheduledTask -TaskName "hybridlab-$Name" -ErrorAction SilentlyContinue)
    $found | ForEach-Object -Process { Unregister-ScheduledTask -InputObject $_ -Confirm:$false }
    return $found.Count -gt 0
}

function New-PowerShellAction {
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Arguments)
    $shell = "$env:SystemRoot\System32\WindowsPowerShell\v1.0\powershell.exe"
    $line = "-NoProfile -NonInteractive -ExecutionPolicy Bypass $Arguments"
    return New-ScheduledTaskAction -Execute $shell -Argument $line
}

function Invoke-FirstLogon {
    # Runs the steps of a first logon, reports each on the serial console, opens the ports last, and
    # returns the exit code of its script.
    # One run at a time. A run interrupted by a reboot starts over at the next start: every step
    # converges. A finished run does nothing the second time.
    [CmdletBinding()] [OutputType([int])]
    param(
        [Parameter(Mandatory)] [ValidatePattern('^[a-z]+$')] [string]$Name,
        [Parameter(Mandatory)] [string]$Script,
        [Parameter(Mandatory)] [string]$Settings,
        [Parameter(Mandatory)] [hashtable]$Shape,
        [Parameter(Mandatory)] [System.Collections.Specialized.OrderedDictionary]$Steps
    )
    $script:LogName = $Name
    $only = New-Object -TypeName 'System.Threading.Mutex' -ArgumentList $false, 'Global\hybridlab'
    $mine = $false
    $at = 'settings'
    try {
        $mine = Wait-Mutex -Mutex $only -Seconds 3600
        Write-Step -Name $at
        $given = Read-Settings -Path $Settings -Shape $Shape
        $script:Round = (Get-FileHash -LiteralPath $Settings -Algorithm SHA256).Hash
        if (Test-Done -Name $Name) {
            Write-Log -Message 'is through already'
            $null = Remove-Task -Name $Name
            return 0
        }
        $null = New-Item -Path $script:LogFolder -ItemType Directory -Force
        Protect-Path -Path $script:Root
        Register-Resumption -Name $Name -Script (Copy-Here -Script $Script -Settings $Settings)
        foreach ($step in $Steps.GetEnumerator()) {
            $at = $step.Key
            Write-Step -Name $at
            $body = [scriptblock]$step.Value
            $null = & $body $given
        }
        $at = 'listen'
        Write-Step -Name $at
        Write-Ready
        Set-Done -Name $Name
        $null = Remove-Task -Name $Name
        return 0
    } catch {
        Write-Log -Message "failed at ${at}: $_ $($_.ScriptStackTrace)"
        Write-Failure -Name $at -Message "$_"
        return 1
    } finally {
        if ($mine) {
            $only.ReleaseMutex()
        }
        $only.Dispose()
    }
}

function Wait-Mutex {
    # Takes a mutex; returns $true, or throws when another run has held it all the time.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [System.Threading.Mutex]$Mutex,
        [Parameter(Mandatory)] [int]$Seconds
    )
    try {
        if (-not $Mutex.WaitOne([TimeSpan]::FromSeconds($Seconds))) {
            throw "another run has not ended in $Seconds s"
        }
    } catch [System.Threading.AbandonedMutexException] {
        Write-Log -Message 'an earlier run was cut off'
    }
    return $true
}

function Write-Ready {
    # Reports what to pin, opens the ports, and reports that, as the last message.
    [CmdletBinding()] param()
    Wait-Until -What 'sshd and WinRM to listen' -Seconds 120 -Condition {
        $ports = @(Get-NetTCPConnection -State Listen -ErrorAction SilentlyContinue |
                ForEach-Object -Process { [int]$_.LocalPort })
        if ($ports -contains $script:SshPort -and $ports -contains $script:WinRmPort) {
            return $true
        }
        return "ports $(($ports | Sort-Object -Unique) -join ', ')"
    }
    Write-Line -Word 'key' -Rest (Get-HostKey)
    Write-Line -Word 'certificate' -Rest (Get-Sha256 -Bytes (Get-ListenerCertificate).RawData)
    Open-Port
    Write-Phase -Name 'ready'
}

# ---- the firewall

function Open-Port {
    # Allows SSH and WinRM on every network.
    [CmdletBinding()] param()
    foreach ($rule in @(@('hybridlab-ssh', $script:SshPort), @('hybridlab-winrm', $script:WinRmPort))) {
        if (-not (Get-NetFirewallRule -Name $rule[0] -ErrorAction SilentlyContinue)) {
            $null = New-NetFirewallRule -Name $rule[0] -DisplayName $rule[0] -Direction Inbound -Action Allow -Protocol TCP -LocalPort $rule[1] -Profile Any
        }
        Enable-NetFirewallRule -Name $rule[0]
    }
}

function Close-Port {
    # Blocks SSH and WinRM: removes the lab's rules and disables Windows' own.
    [CmdletBinding()] param()
    Get-NetFirewallRule -Name 'hybridlab-ssh', 'hybridlab-winrm' -ErrorAction SilentlyContinue |
        Remove-NetFirewallRule
    Disable-WindowsPort
}

function Disable-WindowsPort {
    # Disables Windows' own rules for SSH and WinRM (5985 among them).
    [CmdletBinding()] param()
    Get-NetFirewallRule -Name 'OpenSSH-Server*', 'sshd', 'WINRM-HTTP*' -ErrorAction SilentlyContinue |
        Where-Object -FilterScript { $_.Enabled -eq 'True' } |
        Disable-NetFirewallRule
}

# ---- OpenSSH

function Install-OpenSsh {
    # Makes sure that there is an sshd: from a Win32-OpenSSH archive, or Windows' own, which Windows
    # Update installs if it is missing.
    [CmdletBinding()] [OutputType([bool])]
    param([Parameter(Mandatory)] [AllowNull()] [AllowEmptyString()] [string]$Archive)
    if (Get-Service -Name 'sshd' -ErrorAction SilentlyContinue) {
        return $false
    }
    if ($Archive) {
        Install-OpenSshArchive -Archive $Archive
    } else {
        $null = Add-WindowsCapability -Online -Name 'OpenSSH.Server~~~~0.0.1.0'
    }
    if (-not (Get-Service -Name 'sshd' -ErrorAction SilentlyContinue)) {
        throw 'OpenSSH was installed, and there is no service sshd'
    }
    return $true
}

function Install-OpenSshArchive {
    [CmdletBinding()] param([Parameter(Mandatory)] [string]$Archive)
    $target = Join-Path -Path $env:ProgramFiles -ChildPath 'OpenSSH'
    $scratch = Join-Path -Path $env:ProgramFiles -ChildPath 'OpenSSH.unpacked'
    $null = Remove-IfThere -Path $scratch, $target
    Expand-Archive -LiteralPath $Archive -DestinationPath $scratch -Force
    $installer = Get-ChildItem -LiteralPath $scratch -Recurse -Filter 'install-sshd.ps1' |
        Select-Object -First 1
    if (-not $installer) {
        throw "'$Archive' holds no install-sshd.ps1: it is no release of Win32-OpenSSH"
    }
    Move-Item -LiteralPath $installer.DirectoryName -Destination $target
    $null = Remove-IfThere -Path $scratch
    # A separate shell: that script was not written for strict mode. The service is what counts.
    $null = Invoke-Native -Path "$PSHOME\powershell.exe" -Accept 0, 1 -Arguments @(
        '-NoProfile', '-NonInteractive', '-ExecutionPolicy', 'Bypass', '-Command',
        "& '$target\install-sshd.ps1' -Confirm:`$false")
}

function Set-OpenSsh {
    # Configures sshd: key authentication only, PowerShell as the shell, started with Windows.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [string]$AuthorizedKey)
    $changed = $false
    $service = Get-Service -Name 'sshd'
    if ([string]$service.StartType -ne 'Automatic') {
        Set-Service -Name 'sshd' -StartupType Automatic
        $changed = $true
    }
    Disable-WindowsPort
    $shell = "$env:SystemRoot\System32\WindowsPowerShell\v1.0\powershell.exe"
    if (Set-RegistryValue -Path 'HKLM:\SOFTWARE\OpenSSH' -Name 'DefaultShell' -Kind String -Value $shell) {
        $changed = $true
    }
    Start-Sshd
    if (Set-SshdConfig) {
        Restart-Service -Name 'sshd' -Force
        $changed = $true
    }
    if (Set-AuthorizedKey -Key $AuthorizedKey) {
        $changed = $true
    }
    return $changed
}

function Start-Sshd {
    # Starts sshd, which creates its configuration and host keys if they are missing.
    [CmdletBinding()] param()
    if ((Get-Service -Name 'sshd').Status -ne 'Running') {
        Start-Service -Name 'sshd'
    }
    Wait-Until -What 'the host key of sshd' -Seconds 60 -Condition {
        $file = "$env:ProgramData\ssh\ssh_host_ed25519_key.pub"
        # sshd creates the file before it writes it; rgl's windows-vagrant waits for its length,
        # too.
        $there = Get-Item -LiteralPath $file -ErrorAction SilentlyContinue
        if ($there -and $there.Length -gt 0 -and (Test-Path -LiteralPath "$env:ProgramData\ssh\sshd_config" -PathType Leaf)) {
            return $true
        }
        return "no '$file', or it is empty; sshd is $((Get-Service -Name 'sshd').Status)"
    }
}

function Set-SshdConfig {
    # Puts the lab's options first in sshd_config: sshd uses the first value of each.
    [CmdletBinding()] [OutputType([bool])] param()
    $file = "$env:ProgramData\ssh\sshd_config"
    $head = "# hybridlab`r`nPubkeyAuthentication yes`r`nPasswordAuthentication no`r`nUseDNS no`r`n"
    $text = [System.IO.File]::ReadAllText($file)
    if ($text.StartsWith($head)) {
        return $false
    }
    [System.IO.File]::WriteAllText($file, $head + $text, [System.Text.Encoding]::ASCII)
    return $true
}

function Set-AuthorizedKey {
    # Makes one key the only one that administrators log in with; sshd checks the file's rights.
    [CmdletBinding()] [OutputType([bool])]
    param([Parameter(Mandatory)] [ValidatePattern('^ssh-ed25519 [A-Za-z0-9+/=]+( .*)?$')] [string]$Key)
    $file = "$env:ProgramData\ssh\administrators_authorized_keys"
    $changed = Set-TextFile -Path $file -Text "$Key`r`n"
    Protect-Path -Path $file
    return $changed
}

function Get-HostKey {
    # sshd's public host key: kind and key, without the comment.
    [CmdletBinding()] [OutputType([string])] param()
    $text = [System.IO.File]::ReadAllText("$env:ProgramData\ssh\ssh_host_ed25519_key.pub")
    $found = [regex]::Match($text, '^(ssh-ed25519 [A-Za-z0-9+/=]+)')
    if (-not $found.Success) {
        throw 'the public host key of sshd is no ssh-ed25519 key'
    }
    return $found.Groups[1].Value
}

function Reset-HostKey {
    # Makes sshd create new host keys, because the golden image's must not be used.
    [CmdletBinding()] param()
    Stop-Service -Name 'sshd' -Force
    $folder = "$env:ProgramData\ssh"
    Get-ChildItem -LiteralPath $folder -Filter 'ssh_host_*' -File | Remove-Item -Force
    Start-Sshd
}

# ---- WinRM

function Enable-WinRm {
    # Configures WinRM over TLS with NTLM, in the order that is known to work; opens no port.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)] [AllowNull()] [AllowEmptyString()] [string]$Address,
        [Parameter(Mandatory)] [int]$TimeoutMs
    )
    try {
        Get-NetConnectionProfile |
            Where-Object -FilterScript { $_.NetworkCategory -notin 'DomainAuthenticated', 'Private' } |
            Set-NetConnectionProfile -NetworkCategory Private
    } catch {
        # A network that is still being identified has no category yet; the lab's rules hold for
        # all.
        Write-Log -Message "a network stays public: $_"
    }
    if ((Get-Service -Name 'WinRM').Status -ne 'Running') {
        Start-Service -Name 'WinRM'
    }
    $null = Enable-PSRemoting -SkipNetworkProfileCheck -Force
    Disable-WindowsPort
    $null = Set-WinRmQuota -TimeoutMs $TimeoutMs
    $null = Set-WsManItem -Path 'WSMan:\localhost\Service\AllowUnencrypted' -Value 'false'
    $null = Set-WsManItem -Path 'WSMan:\localhost\Service\Auth\Basic' -Value 'false'
    $null = Set-WsManItem -Path 'WSMan:\localhost\Service\Auth\Negotiate' -Value 'true'
    Set-Listener -Certificate (Get-OrNewCertificate -Address $Address)
    $null = Set-RegistryValue -Path $script:Policies -Name 'LocalAccountTokenFilterPolicy' -Kind DWord -Value 1
    $null = Invoke-Native -Path 'sc.exe' -Arguments 'config', 'WinRM', 'start=', 'delayed-auto'
}

function Set-WsManItem {
    # Sets a value of WinRM's configuration; returns whether it differed before.
    [CmdletBinding()] [OutputType([bool])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [string]$Value
    )
    if ([string](Get-Item -Path $Path).Value -eq $Value) {
        return $false
    }
    Set-Item -Path $Path -Value $Value -Force
    return $true
}

function Set-WinRmQuota {
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [int]$TimeoutMs)
    return Set-WsManItem -Path 'WSMan:\localhost\MaxTimeoutms' -Value "$TimeoutMs"
}

function Get-OrNewCertificate {
    # The certificate of this run, created if there is none: self-signed, with the computer's name
    # and the address, if known, as subject alternative names.
    [CmdletBinding()] param([Parameter(Mandatory)] [AllowNull()] [AllowEmptyString()] [string]$Address)
    $there = @(Get-OwnCertificate)
    if ((Test-Done -Name 'certificate') -and $there.Count -eq 1) {
        return $there[0]
    }
    $there | ForEach-Object -Process { Remove-Item -LiteralPath $_.PSPath -Force }
    $names = "DNS=$env:COMPUTERNAME"
    if ($Address) {
        $names = "$names&IPAddress=$Address"
    }
    $wanted = @{
        Subject = "CN=$env:COMPUTERNAME"
        FriendlyName = $script:CertificateName
        CertStoreLocation = 'Cert:\LocalMachine\My'
        KeyAlgorithm = 'RSA'
        KeyLength = 2048
        HashAlgorithm = 'SHA256'
        KeyExportPolicy = 'NonExportable'
        NotBefore = (Get-Date).AddDays(-1)
        NotAfter = (Get-Date).AddYears(10)
        TextExtension = @("2.5.29.17={text}$names")
    }
    $made = New-SelfSignedCertificate @wanted
    Set-Done -Name 'certificate'
    return $made
}

function Get-OwnCertificate {
    [CmdletBinding()] param()
    Get-ChildItem -Path 'Cert:\LocalMachine\My' |
        Where-Object -FilterScript { $_.FriendlyName -eq $script:CertificateName }
}

function Get-HttpsListener {
    [CmdletBinding()] param()
    Get-ChildItem -Path 'WSMan:\localhost\Listener' |
        Where-Object -FilterScript { $_.Keys -contains 'Transport=HTTPS' }
}

function Get-ListenerThumbprint {
    # The thumbprint of the HTTPS listener; empty if there is no listener.
    [CmdletBinding()] [OutputType([string])] param()
    $listener = Get-HttpsListener | Select-Object -First 1
    if (-not $listener) {
        return ''
    }
    $path = "WSMan:\localhost\Listener\$($listener.Name)\CertificateThumbprint"
    return ([string](Get-Item -Path $path).Value).Replace(' ', '').ToUpperInvariant()
}

function Get-ListenerCertificate {
    [CmdletBinding()] param()
    $thumbprint = Get-ListenerThumbprint
    if (-not $thumbprint) {
        throw 'WinRM has no HTTPS listener'
    }
    return Get-Item -LiteralPath "Cert:\LocalMachine\My\$thumbprint"
}

function Set-Listener {
    # Makes WinRM's only HTTPS listener use a certificate; removes one with another certificate.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory)]
        [System.Security.Cryptography.X509Certificates.X509Certificate2]$Certificate
    )
    if ((Get-ListenerThumbprint) -eq $Certificate.Thumbprint) {
        return
    }
    Get-HttpsListener | ForEach-Object -Process {
        Remove-Item -Path "WSMan:\localhost\Listener\$($_.Name)" -Recurse -Force
    }
    $null = New-Item -Path 'WSMan:\localhost\Listener' -Transport HTTPS -Address '*' -CertificateThumbPrint $Certificate.Thumbprint -Force
}

# ---- accounts, autologon, answer files, time

function Get-Administrator {
    # The built-in administrator, whatever its name is.
    [CmdletBinding()] param()
    Get-LocalUser | Where-Object -FilterScript { $_.SID.Value -match '^S-1-5-21-.*-500$' }
}

function Get-MachineSid {
    [CmdletBinding()] [OutputType([string])] param()
    return (Get-Administrator).SID.Value -replace '-500$', ''
}

function Disable-Autologon {
    # Reverts autologon: its values in the registry and its secret in the LSA.
    [CmdletBinding()] [OutputType([bool])] param()
    $changed = Set-RegistryValue -Path $script:WinLogon -Name 'AutoAdminLogon' -Kind String -Value '0'
    $names = @('AutoLogonCount', 'AutoLogonSID', 'DefaultUserName', 'DefaultDomainName', 'DefaultPassword')
    foreach ($name in $names) {
        if (Remove-RegistryValue -Path $script:WinLogon -Name $name) {
            $changed = $true
        }
    }
    if (Remove-LsaSecret -Name 'DefaultPassword') {
        $changed = $true
    }
    return $changed
}

function Remove-LsaSecret {
    # Removes a secret of the LSA; returns whether it existed.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [string]$Name)
    if (-not ('Hybridlab.LsaSecret' -as [type])) {
        Add-Type -TypeDefinition $script:LsaSecretSource
    }
    return [Hybridlab.LsaSecret]::Remove($Name)
}

$script:LsaSecretSource = @'
using System;
using System.ComponentModel;
using System.Runtime.InteropServices;

namespace Hybridlab
{
    public static class LsaSecret
    {
        private const uint CreateSecret = 0x20;
        private const uint GetPrivateInformation = 0x4;
        private const int NotFound = 2;

        [StructLayout(LayoutKind.Sequential)]
        private struct UnicodeString
        {
            public ushort Length;
            public ushort MaximumLength;
            public IntPtr Buffer;
        }

        [StructLayout(LayoutKind.Sequential)]
        private struct ObjectAttributes
        {
            public uint Length;
            public IntPtr RootDirectory;
            public IntPtr ObjectName;
            public uint Attributes;
            public IntPtr SecurityDescriptor;
            public IntPtr SecurityQualityOfService;
        }

        [DllImport("advapi32.dll")]
        private static extern uint LsaOpenPolicy(
            IntPtr system, ref ObjectAttributes attributes, uint access, out IntPtr policy);

        [DllImport("advapi32.dll")]
        private static extern uint LsaStorePrivateData(
            IntPtr policy, ref UnicodeString name, IntPtr data);

        [DllImport("advapi32.dll")]
        private static extern int LsaNtStatusToWinError(uint status);

        [DllImport("advapi32.dll")]
        private static extern uint LsaClose(IntPtr policy);

        public static bool Remove(string name)
        {
            ObjectAttributes attributes = new ObjectAttributes();
            attributes.Length = (uint)Marshal.SizeOf(attributes);
            IntPtr policy;
            Check(LsaOpenPolicy(
                IntPtr.Zero, ref attributes, CreateSecret | GetPrivateInformation, out policy));
            UnicodeString key = new UnicodeString();
            key.Buffer = Marshal.StringToHGlobalUni(name);
            key.Length = (ushort)(name.Length * 2);
            key.MaximumLength = (ushort)(key.Length + 2);
            try
            {
                uint status = LsaStorePrivateData(policy, ref key, IntPtr.Zero);
                if (LsaNtStatusToWinError(status) == NotFound)
                {
                    return false;
                }
                Check(status);
                return true;
            }
            finally
            {
                Marshal.FreeHGlobal(key.Buffer);
                LsaClose(policy);
            }
        }

        private static void Check(uint status)
        {
            int error = LsaNtStatusToWinError(status);
            if (error != 0)
            {
                throw new Win32Exception(error);
            }
        }
    }
}
'@

function Remove-AnswerFile {
    # Removes the answer files that Windows keeps: they contain passwords, and the next Setup would
    # prefer them to the one on its medium.
    [CmdletBinding()] [OutputType([bool])] param()
    $kept = @(
        "$env:SystemRoot\Panther\unattend.xml",
        "$env:SystemRoot\Panther\autounattend.xml",
        "$env:SystemRoot\Panther\Unattend\unattend.xml",
        "$env:SystemRoot\Panther\Unattend\autounattend.xml",
        "$env:SystemRoot\System32\Sysprep\unattend.xml",
        "$env:SystemRoot\System32\Sysprep\Panther\unattend.xml",
        "$env:SystemDrive\unattend.xml",
        "$env:SystemDrive\autounattend.xml"
    )
    $files = Remove-IfThere -Path $kept
    $named = Remove-RegistryValue -Path 'HKLM:\SYSTEM\Setup' -Name 'UnattendFile'
    return $files -or $named
}

function Find-AnswerFile {
    # Answer files in the root of any drive; sysprep would find them, and keep them for every clone.
    [CmdletBinding()] [OutputType([string[]])] param()
    foreach ($name in 'autounattend.xml', 'unattend.xml') {
        $path = Find-OnDrives -Name $name
        if ($path) {
            $path
        }
    }
}

function Add-ToPath {
    # Adds the folder to the computer's PATH; returns whether it was missing.
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [string]$Folder)
    $path = [Environment]::GetEnvironmentVariable('Path', 'Machine')
    if ($path -split ';' -contains $Folder) {
        return $false
    }
    [Environment]::SetEnvironmentVariable('Path', "$($path.TrimEnd(';'));$Folder", 'Machine')
    return $true
}

function Set-Zone {
    [CmdletBinding()] [OutputType([bool])] param([Parameter(Mandatory)] [string]$Id)
    if ((Get-TimeZone).Id -eq $Id) {
        return $false
    }
    Set-TimeZone -Id $Id
    return $true
}

function Set-TimeServer {
    # Takes the time from one server, and makes the clock's service start with Windows.
    [CmdletBinding()] [OutputType([bool])]
    param([Parameter(Mandatory)] [ValidatePattern('^[A-Za-z0-9.:-]+$')] [string]$Server)
    $service = 'HKLM:\SYSTEM\CurrentControlSet\Services\W32Time'
    $peers = Set-RegistryValue -Path "$service\Parameters" -Name 'NtpServer' -Kind String -Value "$Server,0x8"
    $type = Set-RegistryValue -Path "$service\Parameters" -Name 'Type' -Kind String -Value 'NTP'
    # On a computer without a domain it is started by a trigger that never fires.
    $null = Invoke-Native -Path 'sc.exe' -Arguments 'triggerinfo', 'W32Time', 'start/networkon', 'stop/networkoff'
    Set-Service -Name 'W32Time' -StartupType Automatic
    if ($peers -or $type) {
        Restart-Service -Name 'W32Time' -Force
    } elseif ((Get-Service -Name 'W32Time').Status -ne 'Running') {
        Start-Service -Name 'W32Time'
    }
    return $peers -or $type
}

function Invoke-AsSystem {
    # Runs a program as SYSTEM, outside this session, and returns its exit code.
    # For programs that refuse network sessions, such as wusa.exe.
    [CmdletBinding()] [OutputType([int])]
    param(
        [Parameter(Mandatory)] [string]$Path,
        [Parameter(Mandatory)] [string]$Arguments,
        [Parameter(Mandatory)] [int]$Seconds
    )
    $null = Remove-Task -Name 'once'
    $action = New-ScheduledTaskAction -Execute $Path -Argument $Arguments
    $as = New-ScheduledTaskPrincipal -UserId $script:System -LogonType ServiceAccount -RunLevel Highest
    $null = Register-ScheduledTask -TaskName 'hybridlab-once' -Action $action -Principal $as -Force
    try {
        Start-ScheduledTask -TaskName 'hybridlab-once'
        Wait-Until -What "'$Path' as SYSTEM" -Seconds $Seconds -Condition {
            # 267008 to 267045 are states of the task, not exit codes of the program.
            $code = [long](Get-ScheduledTaskInfo -TaskName 'hybridlab-once').LastTaskResult
            $state = [string](Get-ScheduledTask -TaskName 'hybridlab-once').State
            if ($state -eq 'Ready' -and ($code -lt 267008 -or $code -gt 267045)) {
                return $true
            }
            return "the task is $state, its code $code"
        }
        # It is an unsigned number there; exit codes are signed.
        $code = [uint32](Get-ScheduledTaskInfo -TaskName 'hybridlab-once').LastTaskResult
        return [System.BitConverter]::ToInt32([System.BitConverter]::GetBytes($code), 0)
    } finally {
        $null = Remove-Task -Name 'once'
    }
}

Export-ModuleMember -Function '*'
