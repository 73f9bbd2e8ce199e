{{- /* As in deploy/k8s, the run `fullrank` has no prefix: certificates are named likewise. */ -}}
{{- define "prefix" }}{{ if ne .Release.Name "fullrank" }}{{ .Release.Name }}-{{ end }}{{ end }}

{{- define "run" }}{{ .Values.run | default (.Files.Get "run.toml") }}{{ end }}
