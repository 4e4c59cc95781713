$thing = Get-Thing -Name 'x'
Write-Log -Message $thing
