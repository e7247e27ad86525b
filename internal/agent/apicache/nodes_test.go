// SPDX-License-Identifier: Apache-2.0

package apicache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/agent/kube"
)

// oldFile is a state file in which agents remembered a node before they remembered other objects.
func oldFile(t *testing.T, name, object string) (file []byte) {
	t.Helper()
	for _, entry := range []map[string]any{{"format": 1}, {"save": map[string]any{"name": name, "data": []byte(object)}}} {
		text, err := json.Marshal([]any{entry})
		if err != nil {
			t.Fatal(err)
		}
		file = fmt.Appendf(file, "%08x %s\n", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)), text)
	}
	return file
}

// An agent that starts without the API server after an upgrade knows its nodes, and what it writes
// is what the older release reads if the node goes back.
func TestNodesOfEarlierReleases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, oldFile(t, "n1", `{"metadata":{"name":"n1"},"spec":{"podCIDR":"10.244.1.0/24"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	v, store := open(t, path)
	n := v.State().Nodes.Get("n1")
	if n == nil || n.Name != "n1" || n.Spec.PodCIDR != "10.244.1.0/24" {
		t.Fatalf("nodes: %v", v.State().Nodes)
	}
	if v.State().Listed(Nodes) {
		t.Error("what is remembered counts as heard of the API")
	}
	n = n.DeepCopy()
	n.Name = "n2"
	v.Updates(func() {}).Nodes(kube.Whole([]*corev1.Node{n}))
	if err := v.Save(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(data, []byte(`{"save":{"name":"n2",`)) || !bytes.Contains(data, []byte(`{"forget":"n1"}`)) {
		t.Errorf("%v, not in the form of earlier releases:\n%s", err, data)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, path)
	if got := again.State().Nodes; got.Len() != 1 || got.Get("n2") == nil || got.Get("n2").Spec.PodCIDR != "10.244.1.0/24" {
		t.Errorf("after another start: %v", got)
	}
}

// Each heartbeat gives a Node another version. It is not written for that.
func TestVersionsAreNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	v, _ := open(t, path)
	var sizes []int
	for _, n := range []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "2"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "3"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}},
	} {
		v.Updates(func() {}).Nodes(kube.Whole([]*corev1.Node{n}))
		if err := v.Save(); err != nil {
			t.Fatal(err)
		}
		if got := v.State().Nodes.Get("n1"); got != n || got.ResourceVersion != n.ResourceVersion {
			t.Errorf("%v is known, and not %v", got, n)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(data))
	}
	if sizes[0] != sizes[1] || sizes[1] == sizes[2] {
		t.Errorf("the file grows with the version alone, or not with the object: %v bytes", sizes)
	}
}
