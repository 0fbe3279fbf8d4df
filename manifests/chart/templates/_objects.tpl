{{/* The text of a file of the kustomize folders.  Argument: (dict "chart" . "path" "base/deployment.yaml") */}}
{{- define "slurm-bridge.file" -}}
{{- $text := .chart.Files.Get .path -}}
{{- if not $text -}}
{{- fail (printf "%s is missing in this chart. Take the chart from a checkout in which its links lead somewhere, or a packed one." .path) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* The paths of the files that a kustomization names, in its order, as a JSON array.  Argument: (dict "chart" . "folder" "base") */}}
{{- define "slurm-bridge.files" -}}
{{- $paths := list -}}
{{- $kustomization := include "slurm-bridge.file" (dict "chart" .chart "path" (printf "%s/kustomization.yaml" .folder)) | fromYaml -}}
{{- range $kustomization.resources -}}
{{- if hasSuffix ".yaml" . -}}
{{- $paths = append $paths (printf "%s/%s" $.folder .) -}}
{{- end -}}
{{- end -}}
{{- $paths | toJson -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "slurm-bridge.labels" -}}
app.kubernetes.io/name: slurm-bridge
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The settings, as YAML. */}}
{{- define "slurm-bridge.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- if and (gt (int .Values.replicas) 1) (not (hasKey $settings "lease")) -}}
{{- $_ := set $settings "lease" dict -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* Changes a pod of a Deployment as the values say.  Argument: (dict "chart" . "pod" $pod "resources" .Values.resources) */}}
{{- define "slurm-bridge.pod" -}}
{{- $values := .chart.Values -}}
{{- $container := first .pod.containers -}}
{{- $_ := set $container "image" (printf "%s:%s" $values.image.repository ($values.image.tag | default .chart.Chart.AppVersion)) -}}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy -}}
{{- $_ := set $container "resources" (mergeOverwrite $container.resources .resources) -}}
{{- range .pod.volumes -}}
{{- if .secret }}{{ $_ := set .secret "secretName" $values.token.secret }}{{ end -}}
{{- end -}}
{{- range $key := list "nodeSelector" "tolerations" -}}
{{- with get $values $key }}{{ $_ := set $.pod $key . }}{{ end -}}
{{- end -}}
{{- $pullSecrets := list -}}
{{- range $values.image.pullSecrets }}{{ $pullSecrets = append $pullSecrets (dict "name" .) }}{{ end -}}
{{- with $pullSecrets }}{{ $_ := set $.pod "imagePullSecrets" . }}{{ end -}}
{{- end -}}
