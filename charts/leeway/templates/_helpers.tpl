{{- define "leeway.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "leeway.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels that tell a component's pods: (dict "root" $ "component" NAME). */}}
{{- define "leeway.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Metadata of a component's pods; their port "metrics" is announced to Prometheus. */}}
{{- define "leeway.podMetadata" -}}
{{- $scraped := dict "prometheus.io/scrape" "true" "prometheus.io/port" "9090" -}}
labels:
  {{- toYaml (merge (include "leeway.selector" . | fromYaml) .root.Values.podLabels) | nindent 2 }}
annotations:
  {{- toYaml (merge (dict) .root.Values.podAnnotations $scraped) | nindent 2 }}
{{- end -}}

{{- define "leeway.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* What every pod's spec has: (dict "root" $ "values" VALUES_OF_THE_COMPONENT), and "fsGroup" where it has a volume. */}}
{{- define "leeway.podSpec" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml (merge (dict) .root.Values.podSecurityContext (pick . "fsGroup")) | nindent 2 }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What every container has: (dict "root" $ "values" VALUES_OF_THE_COMPONENT). */}}
{{- define "leeway.container" -}}
image: {{ include "leeway.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources:
  {{- toYaml .values.resources | nindent 2 }}
{{- end -}}
