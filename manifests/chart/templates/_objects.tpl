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

{{/* The scheduler_name of this bridge. */}}
{{- define "slurm-bridge.bridge" -}}
{{- .Values.settings.scheduler_name | default "slurm-bridge" -}}
{{- end -}}

{{/* The namespace of this bridge, which has its name; a namespace has no dots. */}}
{{- define "slurm-bridge.namespace" -}}
{{- include "slurm-bridge.bridge" . | replace "." "-" -}}
{{- end -}}

{{/*
Changes an object of the kustomize folders into that of another bridge (docs/scale.md): in the namespace of that bridge, whose account and
Lease it names.  An object elsewhere has the name of the bridge in its own name, so that two releases have no object in common.
Argument: (dict "chart" . "object" $object)
*/}}
{{- define "slurm-bridge.of-another" -}}
{{- $bridge := include "slurm-bridge.bridge" .chart -}}
{{- $namespace := include "slurm-bridge.namespace" .chart -}}
{{- $object := .object -}}
{{- $elsewhere := ne (get $object.metadata "namespace") "slurm-bridge" -}}
{{- if eq $object.kind "Namespace" -}}
{{- $_ := set $object.metadata "name" $namespace -}}
{{- else if $elsewhere -}}
{{- $_ := set $object.metadata "name" ($object.metadata.name | replace "slurm-bridge" $bridge) -}}
{{- else -}}
{{- $_ := set $object.metadata "namespace" $namespace -}}
{{- end -}}
{{- with get $object "roleRef" -}}
{{- if or $elsewhere (eq .kind "ClusterRole") }}{{ $_ := set . "name" (.name | replace "slurm-bridge" $bridge) }}{{ end -}}
{{- end -}}
{{- range get $object "subjects" | default list }}{{ $_ := set . "namespace" $namespace }}{{ end -}}
{{- range get $object "rules" | default list -}}
{{- if hasKey . "resourceNames" }}{{ $_ := set . "resourceNames" (list $bridge) }}{{ end -}}
{{- end -}}
{{- if eq $object.kind "FlowSchema" -}}
{{- range $object.spec.rules -}}
{{- range .subjects }}{{ $_ := set .serviceAccount "namespace" $namespace }}{{ end -}}
{{- range .resourceRules }}{{ $_ := set . "namespaces" (list $namespace) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The settings, as YAML. */}}
{{- define "slurm-bridge.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- $bridge := include "slurm-bridge.bridge" . -}}
{{- if and (gt (int .Values.replicas) 1) (not (hasKey $settings "lease")) -}}
{{- $_ := set $settings "lease" dict -}}
{{- end -}}
{{- if and (ne $bridge "slurm-bridge") (hasKey $settings "lease") -}}
{{- $own := dict "name" $bridge "namespace" (include "slurm-bridge.namespace" .) -}}
{{- $_ := set $settings "lease" (merge (dict) ($settings.lease | default dict) $own) -}}
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
