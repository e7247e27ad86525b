// SPDX-License-Identifier: Apache-2.0

// Package deploy checks the manifests against the code that they start.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/config"
)

// objects decodes a manifest strictly: an unknown field of any object is an error.
func objects(t *testing.T, file string) []runtime.Object {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	var list []runtime.Object
	for documents := yamlstream.NewDocumentDecoder(f); ; {
		buf := make([]byte, 1<<18)
		n, err := documents.Read(buf)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(buf[:n], []byte("apiVersion")) {
			continue
		}
		o, _, err := decoder.Decode(buf[:n], nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, buf[:n])
		}
		list = append(list, o)
	}
}

// only returns the one object of its type in coelan.yaml.
func only[T runtime.Object](t *testing.T) T {
	t.Helper()
	var found []T
	for _, o := range objects(t, "coelan.yaml") {
		if o, ok := o.(T); ok {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T, want 1", len(found), *new(T))
	}
	return found[0]
}

// named returns the object of its type with that name in coelan.yaml.
func named[T metav1.Object](t *testing.T, name string) T {
	t.Helper()
	for _, o := range objects(t, "coelan.yaml") {
		if o, ok := o.(T); ok && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %T with the name %s", *new(T), name)
	panic("unreachable")
}

func settings(t *testing.T) string {
	t.Helper()
	return only[*corev1.ConfigMap](t).Data["agent.yaml"]
}

// The removal takes the place of agents and controller: the same objects, with other containers.
func TestUninstall(t *testing.T) {
	list := objects(t, "uninstall.yaml")
	if len(list) != 2 {
		t.Fatalf("%d objects, want the DaemonSet and the Deployment", len(list))
	}
	agents, wantAgents := list[0].(*appsv1.DaemonSet), only[*appsv1.DaemonSet](t)
	for _, d := range []*appsv1.DaemonSet{agents, wantAgents} {
		d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{}
		d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers = nil, nil
	}
	if diff := cmp.Diff(wantAgents, agents); diff != "" {
		t.Errorf("but for the containers (-agent +removal):\n%s", diff)
	}
	controller, wantController := list[1].(*appsv1.Deployment), only[*appsv1.Deployment](t)
	if controller.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Error("controllers work beside the removal")
	}
	for _, d := range []*appsv1.Deployment{controller, wantController} {
		d.Spec.Strategy, d.Spec.Replicas = appsv1.DeploymentStrategy{}, nil
		d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers = nil, nil
	}
	if diff := cmp.Diff(wantController, controller); diff != "" {
		t.Errorf("but for the containers (-controller +removal):\n%s", diff)
	}
}

func TestSettingsAreTheDefaults(t *testing.T) {
	got, err := config.Parse([]byte(settings(t)))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.SysctlDir = "/host/proc/sys"
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("settings (-default +manifest):\n%s", diff)
	}
}

// Every setting that the agent knows is in the ConfigMap, below a comment of its own
// or of its group.
func TestEverySettingIsThere(t *testing.T) {
	var got map[string]any
	if err := yaml.Unmarshal([]byte(settings(t)), &got); err != nil {
		t.Fatal(err)
	}
	missing(t, "", reflect.TypeFor[config.Config](), got)
}

func missing(t *testing.T, prefix string, typ reflect.Type, got map[string]any) {
	t.Helper()
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		value, ok := got[name]
		if !ok {
			t.Errorf("the ConfigMap lacks %s%s", prefix, name)
			continue
		}
		if nested, ok := value.(map[string]any); ok && field.Type.Kind() == reflect.Struct {
			missing(t, prefix+name+".", field.Type, nested)
		}
	}
}

// The agent's files are the node's: whatever path a setting names is mounted from the same
// path of the node.
func TestPathsAreMounted(t *testing.T) {
	pod := only[*appsv1.DaemonSet](t).Spec.Template.Spec
	host := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			host[v.Name] = v.HostPath.Path
		}
	}
	mounted := map[string]string{}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounted[m.MountPath] = host[m.Name]
	}
	c := config.Default()
	for _, dir := range []string{
		c.OVSRunDir, c.StateDir, c.CNI.BinDir, c.CNI.ConfDir, filepath.Dir(c.CNI.Socket), filepath.Dir(c.AgentSocket),
	} {
		if mounted[dir] != dir {
			t.Errorf("%s of the node is not mounted there", dir)
		}
	}
}

func TestRights(t *testing.T) {
	own, read := []string{"coelan.io"}, []string{"get", "list", "watch"}
	all := slices.Concat(read, []string{"create", "delete"})
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods", "namespaces"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"k8s.cni.cncf.io"}, Resources: []string{"network-attachment-definitions"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: read},
		{APIGroups: own, Resources: []string{"loadbalancerpools"}, Verbs: read},
		{APIGroups: own, Resources: []string{"networks", "routers", "floatingips", "egresses"}, Verbs: read},
		{APIGroups: own, Resources: []string{"ports"}, Verbs: all},
		{APIGroups: own, Resources: []string{"addressblocks"}, Verbs: all},
		{APIGroups: own, Resources: []string{"ports/status", "addressblocks/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
	if diff := cmp.Diff(want, named[*rbacv1.ClusterRole](t, "coelan-agent").Rules); diff != "" {
		t.Errorf("what the agent may do in the API (-want +got):\n%s", diff)
	}
	context := only[*appsv1.DaemonSet](t).Spec.Template.Spec.Containers[0].SecurityContext
	capabilities := &corev1.Capabilities{
		Drop: []corev1.Capability{"ALL"},
		Add:  []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW", "SYS_ADMIN"},
	}
	if diff := cmp.Diff(capabilities, context.Capabilities); diff != "" {
		t.Errorf("what the agent may do on the node (-want +got):\n%s", diff)
	}
	if context.Privileged != nil {
		t.Error("the agent's container is privileged")
	}
}
