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

{{/* What selects the controller's pods. */}}
{{- define "coelan.controller" -}}
app.kubernetes.io/name: coelan
app.kubernetes.io/component: controller
{{- end -}}

{{- define "coelan.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end -}}

{{/* A token for controllers only, which says on which node its pod is. */}}
{{- define "coelan.token" -}}
- name: controller-token
  projected:
    sources:
      - serviceAccountToken:
          audience: coelan-controller
          expirationSeconds: 3600
          path: {{ . }}
{{- end -}}

{{/* Where the API server is, if an administrator has set it. This outweighs what kubelet sets, the ClusterIP of a Service. */}}
{{- define "coelan.apiserver" -}}
envFrom:
  - configMapRef:
      name: coelan-api-server
      optional: true
{{- end -}}

{{/* The folder in which a node's agent remembers where the API servers are. */}}
{{- define "coelan.apiservers" -}}
{{ .Values.config.stateDir }}/api-server
{{- end -}}

{{/* Whether policies are enforced. YAML reads off as false. */}}
{{- define "coelan.policyMode" -}}
{{- $mode := .Values.config.policy.mode -}}
{{ ternary "off" ($mode | default "enforced") (eq (toString $mode) "false") }}
{{- end -}}

{{/* The folders of kubelet's kubeconfig, each once. */}}
{{- define "coelan.kubeconfigs" -}}
{{- $dirs := list -}}
{{- range .Values.config.apiServer.kubeletKubeconfigs -}}
{{- $dirs = append $dirs (dir .) -}}
{{- end -}}
{{ $dirs | uniq | toJson }}
{{- end -}}

{{/* Image, rights and mounts: the same for the agent and for its removal. */}}
{{- define "coelan.container" -}}
{{- $config := .Values.config -}}
image: {{ include "coelan.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    add:
      - NET_ADMIN # interfaces, routes, nftables, conntrack
      - NET_BIND_SERVICE # ask DHCP servers as a relay
      - NET_RAW # announce addresses of load balancers
      - SYS_ADMIN # enter the pods' network namespaces
{{ include "coelan.apiserver" . }}
volumeMounts:
  - name: config
    mountPath: /etc/coelan
    readOnly: true
  - name: controller-token
    mountPath: {{ dir $config.policy.tokenFile }}
    readOnly: true
  - name: ovs
    mountPath: {{ $config.ovsRunDir }}
  - name: run
    mountPath: {{ dir $config.cni.socket }}
  {{- if ne (dir $config.agentSocket) (dir $config.cni.socket) }}
  - name: run-agent
    mountPath: {{ dir $config.agentSocket }}
  {{- end }}
  - name: state
    mountPath: {{ $config.stateDir }}
  - name: cni-bin
    mountPath: {{ $config.cni.binDir }}
  - name: cni-conf
    mountPath: {{ $config.cni.confDir }}
  # The runtime mounts a file here for every pod it starts; it may name either path.
  - name: netns
    mountPath: /run/netns
    mountPropagation: HostToContainer
  - name: netns
    mountPath: /var/run/netns
    mountPropagation: HostToContainer
  - name: sysctl-net
    mountPath: /host/proc/sys/net
  {{- if include "coelan.southboundSecret" . }}
  - name: southbound
    mountPath: /etc/coelan-ovn
    readOnly: true
  {{- end }}
  # Of kubelet's kubeconfig the agent reads where the API server is, for as long as it knows no better.
  {{- range $i, $dir := include "coelan.kubeconfigs" . | fromJsonArray }}
  - name: kubeconfig-{{ $i }}
    mountPath: {{ $dir }}
    readOnly: true
  {{- end }}
{{- end -}}

{{/* What the controller's node knows of the API servers. */}}
{{- define "coelan.controller.apiservers" -}}
- name: api-server
  mountPath: {{ include "coelan.apiservers" . }}
  readOnly: true
{{- end -}}

{{/* Image and rights: the same for the controller and for its removal. */}}
{{- define "coelan.controller.container" -}}
image: {{ include "coelan.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/bin/coelan-controller]
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{ include "coelan.apiserver" . }}
{{- end -}}

{{/* What selects OVN's databases, and the nodes' ovn-controllers. */}}
{{- define "coelan.ovn" -}}
app.kubernetes.io/name: coelan
app.kubernetes.io/component: ovn
{{- end -}}

{{- define "coelan.ovnController" -}}
app.kubernetes.io/name: coelan
app.kubernetes.io/component: ovn-controller
{{- end -}}

{{/* Image and rights of OVN's programs. */}}
{{- define "coelan.ovn.container" -}}
{{- $image := .Values.ovn.image -}}
image: {{ $image.repository }}:{{ $image.tag | default (printf "v%s" .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "coelan.ovn.secretMount" -}}
{{- if .Values.ovn.secret -}}
- name: certificate
  mountPath: /etc/coelan-ovn
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "coelan.ovn.secretVolume" -}}
{{- with .Values.ovn.secret -}}
- name: certificate
  secret:
    secretName: {{ . }}
{{- end -}}
{{- end -}}

{{/* The remotes of all members at a port; arguments: the values, the port. */}}
{{- define "coelan.ovn.remotes" -}}
{{- $scheme := ternary "tcp" "ssl" (eq (index . 0).ovn.secret "") -}}
{{- $port := index . 1 -}}
{{- $remotes := list -}}
{{- range (index . 0).ovn.members -}}
{{- $host := ternary (printf "[%s]" .) . (contains ":" .) -}}
{{- $remotes = append $remotes (printf "%s:%s:%d" $scheme $host $port) -}}
{{- end -}}
{{ join "," $remotes }}
{{- end -}}

{{/* The servers of OVN's databases: those of the release itself, or others. */}}
{{- define "coelan.northbound" -}}
{{- if .Values.ovn.enabled }}{{ include "coelan.ovn.remotes" (list .Values 6641) }}{{ else }}{{ .Values.controller.northbound }}{{ end -}}
{{- end -}}

{{/* The Secret by which agents read the southbound database: the release's own, or the one that is named. */}}
{{- define "coelan.southboundSecret" -}}
{{- if ne .Values.config.backend.type "ovs" -}}
{{ ternary .Values.ovn.secret .Values.southboundSecret .Values.ovn.enabled }}
{{- end -}}
{{- end -}}

{{- define "coelan.southbound" -}}
{{- if .Values.ovn.enabled }}{{ include "coelan.ovn.remotes" (list .Values 6642) }}{{ else }}{{ .Values.config.backend.southbound }}{{ end -}}
{{- end -}}
