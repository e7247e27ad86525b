// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/announce/keyring"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/wire"
)

func TestControllerRights(t *testing.T) {
	own, read, change := []string{"coelan.io"}, []string{"get", "list", "watch"}, []string{"update", "patch"}
	all := slices.Concat(read, []string{"create"}, change, []string{"delete"})
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods", "namespaces"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"policy.networking.k8s.io"}, Resources: []string{"clusternetworkpolicies"}, Verbs: read},
		{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{policyapi.Resource + "." + policyapi.GroupVersion.Group}, Verbs: read,
		},
		{APIGroups: own, Resources: []string{"securitygroups"}, Verbs: read},
		{APIGroups: []string{"policy.networking.k8s.io"}, Resources: []string{"clusternetworkpolicies/status"}, Verbs: []string{"patch"}},
		{APIGroups: own, Resources: []string{"securitygroups/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "create", "patch"}},
		{APIGroups: own, Resources: []string{"networks", "routers", "ports", "addressblocks"}, Verbs: all},
		{APIGroups: own, Resources: []string{"networks/status", "routers/status", "ports/status", "addressblocks/status", "loadbalancerpools/status",
			"floatingips/status", "egresses/status", "nodenetworkconfigs/status"}, Verbs: change},
		{APIGroups: own, Resources: []string{"floatingips"}, Verbs: append(slices.Clone(read), "create", "delete")},
		{APIGroups: own, Resources: []string{"egresses"}, Verbs: read},
		{APIGroups: own, Resources: []string{"nodenetworkconfigs"}, Verbs: read},
		{APIGroups: own, Resources: []string{"loadbalancerpools"}, Verbs: slices.Concat(read, change)},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		{APIGroups: own, Resources: []string{"networks/finalizers", "routers/finalizers", "ports/finalizers"}, Verbs: []string{"update"}},
	}
	if diff := cmp.Diff(want, named[*rbacv1.ClusterRole](t, "coelan-controller").Rules); diff != "" {
		t.Errorf("in all of the cluster (-want +got):\n%s", diff)
	}
	leases := func(names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: names, Verbs: verbs,
		}
	}
	keep := slices.Concat(read, []string{"update", "delete"})
	want = []rbacv1.PolicyRule{
		leases(nil, "create"), leases([]string{controller.LeaseName}, "get", "update"),
		{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{certs.Secret, keyring.Secret}, Verbs: keep},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{wire.ConfigMap}, Verbs: keep},
	}
	if diff := cmp.Diff(want, named[*rbacv1.Role](t, "coelan-controller").Rules); diff != "" {
		t.Errorf("in its namespace (-want +got):\n%s", diff)
	}
}

// The controller works as it would without any flag.
func TestControllerFlagsAreTheDefaults(t *testing.T) {
	defaults := controller.DefaultOptions()
	want := []string{
		"--mapping=" + string(defaults.Mapping),
		"--vni-range=" + defaults.VNIs.String(),
		"--external-ips=",
		"--metrics-bind-address=" + defaults.MetricsBindAddress,
		"--metrics-access=" + string(defaults.MetricsAccess),
		"--policy-bind-address=" + defaults.PolicyBindAddress,
		"--leader-election-namespace=$(NAMESPACE)",
		"--log-level=info",
		// Where the agent of its node has it.
		"--api-servers=" + config.Default().StateFile("api-server/endpoints.json"),
	}
	if diff := cmp.Diff(want, only[*appsv1.Deployment](t).Spec.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	mounted := func(m corev1.VolumeMount) bool { return m.MountPath == filepath.Dir(defaults.PolicyTokenFile) }
	if !slices.ContainsFunc(only[*appsv1.Deployment](t).Spec.Template.Spec.Containers[0].VolumeMounts, mounted) {
		t.Errorf("there is no token in %s", defaults.PolicyTokenFile)
	}
	// The root file system is read-only.
	mounted = func(m corev1.VolumeMount) bool { return m.MountPath == filepath.Dir(defaults.Socket) && !m.ReadOnly }
	if !slices.ContainsFunc(only[*appsv1.Deployment](t).Spec.Template.Spec.Containers[0].VolumeMounts, mounted) {
		t.Errorf("there is no room for the socket %s", defaults.Socket)
	}
	if agent := config.Default().Mapping; string(agent) != string(defaults.Mapping) {
		t.Errorf("agents map namespaces %s, the controller %s", agent, defaults.Mapping)
	}
}

func TestControllerPods(t *testing.T) {
	deployment := only[*appsv1.Deployment](t)
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]
	if !pod.Spec.HostNetwork {
		t.Error("the controller waits for the pods' network")
	}
	port := func(name string) int32 {
		i := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("ports %v, of which none is %s", container.Ports, name)
		}
		return container.Ports[i].ContainerPort
	}
	if port("metrics") != container.ReadinessProbe.HTTPGet.Port.IntVal {
		t.Errorf("ports %v, want that of the probes, so that no two replicas meet on a node", container.Ports)
	}
	if service := only[*corev1.Service](t); service.Name != wire.Service || service.Spec.Ports[0].Name != wire.PortName ||
		service.Spec.Ports[0].Port != port("policy") || service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("agents do not find the controllers by the Service %v", service)
	}
	if surge := deployment.Spec.Strategy.RollingUpdate.MaxSurge; surge == nil || surge.IntVal != 0 {
		t.Errorf("a roll-out makes %v replicas more, for which a small cluster has no node", surge)
	}
	if c := container.SecurityContext; *c.AllowPrivilegeEscalation || len(c.Capabilities.Add) > 0 || c.Privileged != nil {
		t.Errorf("the controller may do more than speak to the API: %v", c)
	}
	budget := only[*policyv1.PodDisruptionBudget](t).Spec.Selector
	service := &metav1.LabelSelector{MatchLabels: only[*corev1.Service](t).Spec.Selector}
	for name, s := range map[string]*metav1.LabelSelector{"Deployment": deployment.Spec.Selector, "budget": budget, "Service": service} {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		if !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the %s does not select the pods", name)
		}
		if selector.Matches(labels.Set(only[*appsv1.DaemonSet](t).Spec.Template.Labels)) {
			t.Errorf("the %s selects agents", name)
		}
	}
}

// Agents and controllers have tokens for controllers, in the files that they read.
func TestTokens(t *testing.T) {
	for name, pod := range map[string]corev1.PodSpec{
		"agent": only[*appsv1.DaemonSet](t).Spec.Template.Spec, "controller": only[*appsv1.Deployment](t).Spec.Template.Spec,
	} {
		files := map[string]string{}
		for _, v := range pod.Volumes {
			if v.Projected == nil {
				continue
			}
			for _, m := range pod.Containers[0].VolumeMounts {
				if m.Name == v.Name {
					token := v.Projected.Sources[0].ServiceAccountToken
					files[filepath.Join(m.MountPath, token.Path)] = token.Audience
				}
			}
		}
		if audience := files[config.Default().Policy.TokenFile]; audience != wire.Audience {
			t.Errorf("%s: of tokens %v, none is for controllers", name, files)
		}
	}
	read := []string{"get", "list", "watch"}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{wire.ConfigMap}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{keyring.Secret}, Verbs: read},
	}
	if diff := cmp.Diff(want, named[*rbacv1.Role](t, "coelan-agent").Rules); diff != "" {
		t.Errorf("what the agent may do in its namespace (-want +got):\n%s", diff)
	}
}
