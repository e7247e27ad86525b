// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"coelan.io/coelan/api/v1alpha1"
)

// server answers by path, and notes what is asked.
type server struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]string // by "METHOD path"
	asked   []string
}

func serve(t *testing.T, answers map[string]string) (*server, *Client) {
	t.Helper()
	s := &server{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	c, err := connect(slog.New(slog.DiscardHandler), &rest.Config{Host: s.URL}, "n1")
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)))
	answer, ok := s.answers[r.Method+" "+r.URL.Path]
	s.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
		return
	}
	fmt.Fprint(w, answer)
}

func TestCustomObjects(t *testing.T) {
	const group = "/apis/coelan.io/v1alpha1"
	s, c := serve(t, map[string]string{
		"GET " + group + "/addressblocks":                                      `{"kind":"AddressBlockList","apiVersion":"coelan.io/v1alpha1","items":[{"metadata":{"name":"a"},"spec":{"network":"lan","cidr":"10.0.0.0/28"}},{"metadata":{"name":"b"},"spec":{"network":"another"}}]}`,
		"POST " + group + "/addressblocks":                                     `{"kind":"AddressBlock","apiVersion":"coelan.io/v1alpha1","metadata":{"name":"a","uid":"u"}}`,
		"DELETE " + group + "/addressblocks/a":                                 `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
		"PATCH " + group + "/addressblocks/a/status":                           `{"kind":"AddressBlock","apiVersion":"coelan.io/v1alpha1"}`,
		"PATCH " + group + "/namespaces/shop/ports/vm/status":                  `{"kind":"Port","apiVersion":"coelan.io/v1alpha1"}`,
		"GET /apis/k8s.cni.cncf.io/v1/namespaces/shop/" + Definitions + "/lan": `{"kind":"NetworkAttachmentDefinition","apiVersion":"k8s.cni.cncf.io/v1","spec":{"config":"{}"}}`,
	})
	ctx := t.Context()
	if blocks, err := c.Blocks(ctx, "lan"); err != nil || len(blocks) != 1 || blocks[0].Spec.CIDR != "10.0.0.0/28" {
		t.Errorf("blocks: %+v, %v", blocks, err)
	}
	if b, err := c.CreateBlock(ctx, &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil || b.UID != "u" {
		t.Errorf("created: %+v, %v", b, err)
	}
	if d, err := c.Definition(ctx, "shop", "lan"); err != nil || d.Spec.Config != "{}" {
		t.Errorf("definition: %+v, %v", d, err)
	}
	if _, err := c.Port(ctx, "shop", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("a Port that is not there: %v", err)
	}
	for name, err := range map[string]error{
		"delete": c.DeleteBlock(ctx, "a", "u"), "delete what is gone": c.DeletePort(ctx, "shop", "none", "u"),
		"block status": c.PatchBlockStatus(ctx, "a", map[string]any{"used": 3}),
		"port status":  c.PatchPortStatus(ctx, "shop", "vm", map[string]any{"node": nil}),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := []string{
		"DELETE " + group + `/addressblocks/a {"kind":"DeleteOptions","apiVersion":"coelan.io/v1alpha1","preconditions":{"uid":"u"}}`,
		"PATCH " + group + `/addressblocks/a/status {"status":{"used":3}}`,
		"PATCH " + group + `/namespaces/shop/ports/vm/status {"status":{"node":null}}`,
	}
	for _, w := range want {
		if !slices.Contains(s.asked, w) {
			t.Errorf("no request %s in\n%s", w, strings.Join(s.asked, "\n"))
		}
	}
}

func TestWatchObjects(t *testing.T) {
	const group = "/apis/coelan.io/v1alpha1"
	list := func(kind, items string) string {
		return `{"kind":"` + kind + `List","apiVersion":"coelan.io/v1alpha1","metadata":{"resourceVersion":"5"},"items":[` + items + `]}`
	}
	s, c := serve(t, map[string]string{
		"GET /api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"shop","labels":{"a":"b"},"annotations":{"large":"x"}}}]}`,
		"GET /api/v1/nodes":      `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"n1"},"spec":{"podCIDRs":["10.244.1.0/24"]},"status":{"images":[{}]}}]}`,
		"GET " + group + "/networks": list("Network", `{"metadata":{"name":"lan","managedFields":[{}],
			"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","coelan.io/kuryr-network":"shop"}},
			"status":{"id":2,"addressesUsed":7,"neutron":{"id":"n","subnets":[{"cidr":"10.0.0.0/24","id":"s"}]}}}`),
		"GET " + group + "/routers": list("Router", ""), "GET " + group + "/addressblocks": list("AddressBlock", ""),
		"GET " + group + "/ports": list("Port", `{"metadata":{"name":"vm"},"status":{"node":"n1","lease":{"hostName":"db"}}}`),
		"GET /apis/k8s.cni.cncf.io/v1/network-attachment-definitions": `{"kind":"NetworkAttachmentDefinitionList","apiVersion":"k8s.cni.cncf.io/v1",
			"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"namespace":"shop","name":"lan",
			"annotations":{"large":"x","openstack.org/kuryr-config":"{}"}}}]}`,
	})
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan string, 20)
	var network *v1alpha1.Network
	var port *v1alpha1.Port
	done := make(chan error, 1)
	go func() {
		done <- c.WatchObjects(ctx, Updates{
			Nodes: func(l Delta[*corev1.Node]) {
				heard <- fmt.Sprint("nodes ", len(l.Set), l.Set[0].Spec.PodCIDRs, len(l.Set[0].Status.Images))
			},
			Namespaces: func(l Delta[*corev1.Namespace]) {
				heard <- fmt.Sprint("namespaces ", len(l.Set), l.Set[0].Labels, l.Set[0].Annotations)
			},
			Networks:    func(l Delta[*v1alpha1.Network]) { network = l.Set[0]; heard <- fmt.Sprint("networks ", len(l.Set)) },
			Routers:     func(l Delta[*v1alpha1.Router]) { heard <- fmt.Sprint("routers ", len(l.Set)) },
			Blocks:      func(l Delta[*v1alpha1.AddressBlock]) { heard <- fmt.Sprint("blocks ", len(l.Set)) },
			Ports:       func(l Delta[*v1alpha1.Port]) { port = l.Set[0]; heard <- fmt.Sprint("ports ", len(l.Set)) },
			Pools:       func(Delta[*v1alpha1.LoadBalancerPool]) { heard <- "pools" },
			FloatingIPs: func(Delta[*v1alpha1.FloatingIP]) { heard <- "floating IPs" },
			Egresses:    func(Delta[*v1alpha1.Egress]) { heard <- "egresses" },
			Definitions: func(l Delta[*Definition]) { heard <- fmt.Sprint("definitions ", l.Set[0].Annotations) },
			Absent:      func(resource string) { heard <- "absent " + resource },
		})
	}()
	var got []string
	for range 10 {
		select {
		case h := <-heard:
			got = append(got, h)
		case <-time.After(patience):
			t.Fatalf("only heard %v", got)
		}
	}
	slices.Sort(got)
	want := []string{"absent " + Egresses, "absent " + FloatingIPs, "absent " + Pools, "blocks 0", "definitions map[openstack.org/kuryr-config:{}]", "namespaces 1 map[a:b] map[]", "networks 1", "nodes 1 [10.244.1.0/24] 0", "ports 1", "routers 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"coelan.io/kuryr-network": "shop"}, network.Annotations); diff != "" {
		t.Errorf("annotations of the Network (-want +got):\n%s", diff)
	}
	if network.ManagedFields != nil || network.Status.AddressesUsed != 0 || network.Status.ID != 2 {
		t.Errorf("the Network is not slim: %+v", network)
	}
	if n := network.Status.Neutron; n == nil || len(n.Subnets) != 1 || n.Subnets[0].ID != "s" {
		t.Errorf("which network of Neutron it is has gone: %+v", n)
	}
	if port.Status.Lease != nil || port.Status.Node != "n1" {
		t.Errorf("the Port is not slim: %+v", port)
	}
	s.mu.Lock()
	if !slices.ContainsFunc(s.asked, func(r string) bool { return strings.Contains(r, "/ports?labelSelector=%21coelan.io%2Fpod-port&") }) {
		t.Errorf("Ports that only their node needs to know are asked for:\n%s", strings.Join(s.asked, "\n"))
	}
	s.mu.Unlock()
	cancel()
	s.CloseClientConnections()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
