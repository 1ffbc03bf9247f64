{{- define "hostd.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "hostd.nodes" -}}
{{ include "hostd.name" . }}-nodes
{{- end -}}

{{- define "hostd.selector" -}}
app.kubernetes.io/name: hostd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hostd.labels" -}}
{{ include "hostd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The domain of the nodes' own names. */}}
{{- define "hostd.domain" -}}
{{ include "hostd.nodes" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The domain must leave room for the name of a node and the port in 128 bytes. */}}
{{- define "hostd.checkNames" -}}
{{- if gt (len (printf "%s-999.%s:7071" (include "hostd.name" .) (include "hostd.domain" .))) 128 -}}
{{- fail "fullnameOverride: the names of the nodes are too long: choose a shorter name for the release" -}}
{{- end -}}
{{- end -}}

{{/* The configuration file. The chart's own keys are not overridden. */}}
{{- define "hostd.config" -}}
{{- $own := dict
  "listen" ":7070"
  "peer-listen" ":7071"
  "health-listen" ":7072"
  "bootstrap-expect" (int .Values.bootstrapExpect)
  "seeds" (list (printf "%s:7071" (include "hostd.domain" .)))
-}}
{{- if .Values.tls.enabled -}}
{{- $own = merge $own (dict "tls-mode" .Values.tls.mode "peer-tls-mode" .Values.tls.mode "peer-ca-file" "/etc/hostd/tls/ca.crt") -}}
{{- end -}}
{{- $required := and .Values.tls.enabled (eq .Values.tls.mode "require") -}}
{{- if not $required -}}
{{- $own = merge $own (dict "insecure-peers" true) -}}
{{- end -}}
{{- $signIn := or (eq (get .Values.config "auth" | toString) "required") (eq (get .Values.config "tls-client-auth" | toString) "require") -}}
{{- if not (and $required $signIn) -}}
{{- $own = merge $own (dict "insecure-listen" true) -}}
{{- end -}}
{{- range $key := list "data-dir" "node-id" "zone" "advertise" "peer-advertise" "tls-cert-file" "tls-key-file" "peer-cert-file" "peer-key-file" "bootstrap" -}}
{{- if hasKey $.Values.config $key -}}
{{- fail (printf "config.%s: the chart sets this key itself" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := $own -}}
{{- if hasKey $.Values.config $key -}}
{{- fail (printf "config.%s: the chart sets this key itself" $key) -}}
{{- end -}}
{{- end -}}
{{- toYaml (merge $own .Values.config) -}}
{{- end -}}
