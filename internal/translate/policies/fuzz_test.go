// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/translate/translatetest"
)

// seeds are the objects of golden files, as JSON.
func seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for document := range bytes.SplitSeq(translatetest.Section(txtar.Parse(text), "objects.yaml"), []byte("\n---\n")) {
			seed, err := yaml.YAMLToJSON(document)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(seed)
		}
	}
}

func FuzzNetworkPolicy(f *testing.F) {
	seeds(f, "network*.txtar")
	f.Fuzz(func(t *testing.T, text []byte) {
		o := &networkingv1.NetworkPolicy{}
		if json.Unmarshal(text, o) != nil {
			return
		}
		o.Namespace = "shop" // it always has one
		p, problems := NetworkPolicy(o)
		checkPolicy(t, p, problems)
	})
}

func FuzzClusterNetworkPolicy(f *testing.F) {
	seeds(f, "cluster*.txtar")
	f.Fuzz(func(t *testing.T, text []byte) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(text) != nil {
			return
		}
		o := policyapi.Parse(u)
		p, problems := ClusterNetworkPolicy(o)
		checkPolicy(t, p, problems)
		if len(o.Unknown) > 0 && len(problems) == 0 {
			t.Fatalf("nothing is said of %v", o.Unknown)
		}
	})
}

func FuzzSecurityGroup(f *testing.F) {
	seeds(f, "groups.txtar")
	f.Fuzz(func(t *testing.T, text []byte) {
		o := &v1alpha1.SecurityGroup{}
		if json.Unmarshal(text, o) != nil {
			return
		}
		p, problems := SecurityGroup(o)
		checkPolicy(t, p, problems)
	})
}

// FuzzPolicyEndpoint reads any pod, Port and node.
func FuzzPolicyEndpoint(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"a","name":"p","uid":"u","annotations":{"coelan.io/security-groups":"a, b,,A/"}},"spec":{"nodeName":"n","containers":[{"ports":[{"name":"x","containerPort":80}]}]},"status":{"podIPs":[{"ip":"10.0.0.5"},{"ip":"x"}]}}`),
		[]byte(`{"metadata":{"namespace":"a","name":"p.eth0"},"spec":{"network":"default","pod":{"name":"p","uid":"u","interface":"eth0"}},"status":{"addresses":["10.0.0.5","::ffff:10.0.0.1"],"nodeAddresses":["10.0.0.6"]}}`),
		[]byte(`{"metadata":{"name":"n"},"spec":{"podCIDRs":["10.0.0.0/24"]},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"},{"type":"Hostname","address":"n"}]}}`))
	f.Fuzz(func(t *testing.T, one, two, three []byte) {
		pod, port, node := &corev1.Pod{}, &v1alpha1.Port{}, &corev1.Node{}
		if json.Unmarshal(one, pod) != nil || json.Unmarshal(two, port) != nil || json.Unmarshal(three, node) != nil {
			return
		}
		e := NewEndpoints()
		e.SetPort(port)
		e.SetPod(pod)
		e.SetNode(node)
		set, gone := e.Changes()
		if len(gone) > 0 {
			t.Fatalf("gone: %v", gone)
		}
		for _, endpoint := range set {
			for _, p := range endpoint.Places {
				if !p.Address.IsValid() || p.Address.Is4In6() || p.Space == "" {
					t.Fatalf("place %+v", p)
				}
			}
		}
		for _, p := range e.Problems() {
			if p.Object == "" || p.Field == "" || p.Reason == "" || p.Text == "" {
				t.Fatalf("a problem says too little: %+v", p)
			}
		}
		e.DeletePort(port.Namespace, port.Name)
		e.DeletePod(pod.Namespace, pod.Name)
		if set, gone := e.Changes(); len(set) > 0 || len(gone) > 2 || len(e.made)+len(e.keys)+len(e.groupsOf)+len(e.naming)+len(e.onto)+len(e.podPorts)+len(e.onNode)+len(e.foreign)+len(e.foreignOn) > 0 {
			t.Fatalf("something is left: %v, %v, %+v", set, gone, e)
		}
		Node(node, nil)
	})
}
