{{/* What every object carries. */}}
{{- define "coelan.labels" -}}
app.kubernetes.io/name: coelan
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* What selects the agent's pods. */}}
{{- define "coelan.agent" -}}
app.kubernetes.io/name: coelan
app.kubernetes.io/component: agent
{{- end -}}

{{- define "coelan.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end -}}
