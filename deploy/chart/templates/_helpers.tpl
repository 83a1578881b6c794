{{- /* What the generated templates need beyond one expression. Lists of arguments are said above each. */ -}}

{{- /* labels, more labels, annotations, more annotations → `labels:` and `annotations:`; what is ours wins. */ -}}
{{- define "polyarch.marks" -}}
labels:
  {{- merge (dict) (index . 0) (index . 1) | toYaml | nindent 2 }}
{{- with merge (dict) (index . 2) (index . 3) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* "true" or "false": as the values say, else what the API server serves. */ -}}
{{- define "polyarch.openshift" -}}
{{ ternary (.Capabilities.APIVersions.Has "config.openshift.io/v1") .Values.openshift (kindIs "invalid" .Values.openshift) }}
{{- end }}

{{- define "polyarch.image" -}}
{{- with .Values.image -}}
{{ if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* The ConfigMap of the registries; empty: none. */ -}}
{{- define "polyarch.registries" -}}
{{- with .Values.registries -}}
{{ .configMap | default (ternary "polyarch-registries" "" (or (ne .configuration "") (ne .authorities "") (ne .credentialProviders.configuration ""))) }}
{{- end }}
{{- end }}

{{- define "polyarch.scheduling" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
  {{- range .Values.tolerations }}
  - operator: {{ if and .key (ne (default "" .operator) "Exists") }}Equal
    value: {{ .value | default "" | quote }}
    {{- else }}Exists{{ end }}
    {{- with .key }}
    key: {{ . | quote }}
    {{- end }}
    {{- with .effect }}
    effect: {{ . }}
    {{- end }}
  {{- end }}
  {{- /* Taints by architecture, so that the operator runs wherever its image does. */ -}}
  {{- $taint := (.Values.taints.configuration | default dict).taint | default dict }}
  {{- range list "supported-arch" "kubernetes.io/arch" "multi-arch.openshift.io/arch" $taint.key }}
  {{- if . }}
  - operator: Exists
    key: {{ . | quote }}
  {{- end }}
  {{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* root, expressions, anti-affinity → the affinity of the values with these expressions in every required term, and with this anti-affinity if they have none. */ -}}
{{- define "polyarch.affinity" -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $affinity := deepCopy (index . 0).Values.operator.affinity -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $terms := list -}}
{{- range (get $node $key | default dict).nodeSelectorTerms | default (list dict) -}}
{{- $terms = append $terms (set . "matchExpressions" (concat (.matchExpressions | default list) (index $ 1))) -}}
{{- end -}}
{{- $affinity = set $affinity "nodeAffinity" (set $node $key (dict "nodeSelectorTerms" $terms)) -}}
{{- if not (hasKey $affinity "podAntiAffinity") -}}
{{- $affinity = set $affinity "podAntiAffinity" (index . 2) -}}
{{- end -}}
{{- toYaml $affinity }}
{{- end }}

{{- /* root, variables → `env` entries: these variables, those of the settings that are not as usual, those of the values. */ -}}
{{- define "polyarch.environment" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values -}}
{{- $secret := $values.registries.globalPullSecret | default dict -}}
{{- $tolerations := list -}}
{{- range $values.tolerations -}}
{{- $compared := and .key (ne (default "" .operator) "Exists") -}}
{{- $value := ternary (printf "=%s" (default "" .value)) "" (not (not $compared)) -}}
{{- $effect := ternary (printf ":%s" (default "" .effect)) "" (not (not .effect)) -}}
{{- $tolerations = append $tolerations (printf "%s%s%s" (default "" .key) $value $effect | default ":") -}}
{{- end -}}
{{- $labels := list -}}
{{- range $name, $value := $values.nodeSelector -}}
{{- $labels = append $labels (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- $annotations := list -}}
{{- range $name, $value := $values.registries.identity.annotations -}}
{{- $annotations = append $annotations (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- range $role, $given := $values.registries.identity.roles -}}
{{- range $name, $value := $given -}}
{{- $annotations = append $annotations (printf "%s:%s=%s" $role $name $value) -}}
{{- end -}}
{{- end -}}
{{- $podLabels := list -}}
{{- range $name, $value := $values.registries.identity.podLabels -}}
{{- $podLabels = append $podLabels (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- $settings := list
  (list "CERTIFICATES" $values.certificates "self-managed")
  (list "NETWORK_POLICIES" (toString $values.networkPolicies) "true")
  (list "ADMISSION_POLICIES" (toString $values.admissionPolicies) "true")
  (list "WEBHOOK_REPLICAS" (toString $values.placement.webhookReplicas) "3")
  (list "CONTROLLER_REPLICAS" (toString $values.placement.controllerReplicas) "2")
  (list "HANDLER_REPLICAS" (toString $values.placement.handlerReplicas) "2")
  (list "TAINTS_REPLICAS" (toString $values.taints.replicas) "2")
  (list "GLOBAL_PULL_SECRET_NAMESPACE" (default "" $secret.namespace) "")
  (list "GLOBAL_PULL_SECRET_NAME" (default "" $secret.name) "")
  (list "REGISTRIES_CONFIGMAP" (include "polyarch.registries" $root) "")
  (list "CREDENTIAL_PROVIDER_IMAGE" $values.registries.credentialProviders.image "")
  (list "CREDENTIAL_PROVIDER_DIRECTORY" $values.registries.credentialProviders.directory "")
  (list "CREDENTIAL_PROVIDER_MOUNT" $values.registries.credentialProviders.mount "auto")
  (list "SERVICE_ACCOUNT_ANNOTATION" (join " " $annotations) "")
  (list "ROLE_POD_LABEL" (join " " $podLabels) "")
  (list "SECRET_ACCESS" $values.registries.secretAccess "byName")
  (list "ALLOW_ADDRESS" (join " " $values.registries.allowAddresses) "")
  (list "DENY_ADDRESS" (join " " $values.registries.denyAddresses) "")
  (list "PRIORITY_CLASS" $values.priorityClassName "system-cluster-critical")
  (list "NODE_SELECTOR" (join " " $labels) "")
  (list "TOLERATION" (join " " $tolerations) "")
  (list "BUILDS" (ternary $values.builds.mode "off" (has "builds" $values.components)) "off")
  (list "BUILDER_REPLICAS" (toString $values.builds.replicas) "2")
  (list "BUILDER_IMAGE" $values.builds.builderImage "quay.io/buildah/stable:v1")
  (list "ALLOW_PRIVILEGED_BUILDS" (toString $values.builds.allowPrivileged) "false")
  (list "MAX_ACTIVE_JOBS" (toString $values.builds.maxActiveJobs) "20")
  (list "MACHINE_OS" (ternary $values.builds.machineOs "off" (has "builds" $values.components)) "off")
  (list "MACHINE_OS_NAMESPACE" $values.builds.machineOsNamespace "openshift-machine-config-operator")
  (list "NUMA" (ternary "auto" "off" (has "numa" $values.components)) "")
  (list "MANAGE_NAMESPACE" (toString (has "numa" $values.components)) "false")
-}}
{{- $variables := index . 1 -}}
{{- range $settings -}}
{{- if ne (index . 1) (index . 2) -}}
{{- $_ := set $variables (printf "POLYARCH_%s" (index . 0)) (index . 1) -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := merge (dict) $values.operator.environment $variables }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
