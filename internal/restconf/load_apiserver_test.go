// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package restconf

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

// load is how long the tests under load last; 0: as briefly as they show what they are for.
var load = flag.Duration("load", 0, "how long tests under load last")

// counter is an object with a description that counts increments, and the entries that show it.
type counter struct {
	object client.Object
	paths  []string
}

// counters are of several kinds. Clients of several models, and of kubectl, meet at those that are
// shared; each client has one of its own as well.
func counters(clients int) (shared []counter, own []counter) {
	network := func(name string) counter {
		n := &v1alpha1.Network{Spec: v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, VLAN: new(int32(1000)), PhysicalNetwork: "p", Role: v1alpha1.Secondary, IPAM: v1alpha1.Blocks}}
		n.Name = name
		return counter{n, []string{"coelan:networks/network=" + name, "elan:elan-instances/elan-instance=" + name}}
	}
	router, group, port := &v1alpha1.Router{}, &v1alpha1.SecurityGroup{}, &v1alpha1.Port{Spec: v1alpha1.PortSpec{Network: "shared"}}
	for _, o := range []client.Object{router, group, port} {
		o.SetName("shared")
	}
	group.Namespace, port.Namespace = "default", "default"
	shared = []counter{
		network("shared"),
		{router, []string{"coelan:routers/router=shared"}},
		{group, []string{"coelan:security-groups/security-group=default,shared"}},
		{port, []string{"coelan:ports/port=default,shared", "elan:elan-interfaces/elan-interface=default%3Ashared", "ietf-interfaces:interfaces/interface=default%3Ashared"}},
	}
	for i := range clients {
		own = append(own, network(fmt.Sprintf("own-%d", i)))
	}
	return shared, own
}

// TestIncrements has 20 clients of two replicas, and three of kubectl's kind, increment counters:
// each increment that was acknowledged is there at the end.
func TestIncrements(t *testing.T) {
	const clients, kubectls, least = 20, 3, 4
	s := serve(t)
	shared, own := counters(clients)
	for _, c := range append(slices.Clone(shared), own...) {
		c.object.SetAnnotations(map[string]string{mapping.AnnotationDescription: "0"})
		if err := s.client.Create(t.Context(), c.object); err != nil {
			t.Fatal(err)
		}
	}
	done := tally{counts: map[string]int{}}
	end := time.Now().Add(*load)
	// Clients of kubectl's kind write once for some writes of the others: they are much faster, and
	// would leave them none.
	turns := make(chan struct{}, kubectls)
	var wait, others sync.WaitGroup
	for i := range clients {
		wait.Go(func() {
			for n := 0; n < least || time.Now().Before(end); n++ {
				c := own[i]
				if n%3 != 0 {
					c = shared[rand.IntN(len(shared))]
				}
				if !s.increment(i%2, c.paths[rand.IntN(len(c.paths))]) {
					return
				}
				done.add(keyOfCounter(c), "restconf")
				select {
				case turns <- struct{}{}:
				default:
				}
			}
		})
	}
	for i := range kubectls {
		others.Go(func() {
			n := 0
			for range turns {
				n++
				c := shared[rand.IntN(len(shared))]
				if i == 0 {
					// A patch of something that RESTCONF has no node for.
					if !s.label(c, n) {
						return
					}
					continue
				}
				if !s.kubectlIncrements(c) {
					return
				}
				done.add(keyOfCounter(c), "kubectl")
			}
		})
	}
	wait.Wait()
	close(turns)
	others.Wait()
	total := 0
	for _, c := range append(shared, own...) {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(c.object), c.object); err != nil {
			t.Fatal(err)
		}
		want := done.counts[keyOfCounter(c)]
		total += want
		if got := c.object.GetAnnotations()[mapping.AnnotationDescription]; got != strconv.Itoa(want) {
			t.Errorf("%s counts %s increments, %d were acknowledged", keyOfCounter(c), got, want)
		}
	}
	t.Logf("%d increments, %d by RESTCONF; %d times another client came first", total, done.counts["restconf"], s.conflicts.Load())
	if done.counts["restconf"] == 0 || done.counts["kubectl"] == 0 {
		t.Error("nothing was incremented")
	}
	for _, c := range shared {
		if got := c.object.GetLabels()["patched"]; got != "" && got != s.lastLabel(c) {
			t.Errorf("%s: the label is %q, and was last written as %q", keyOfCounter(c), got, s.lastLabel(c))
		}
	}
}

// tally counts increments.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (y *tally) add(keys ...string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, key := range keys {
		y.counts[key]++
	}
}

func keyOfCounter(c counter) string {
	return fmt.Sprintf("%T %s", c.object, client.ObjectKeyFromObject(c.object))
}

// increment counts up by what the entry was when it was read, as often as another client was first.
func (s *served) increment(replica int, path string) bool {
	list, _, _ := strings.Cut(path[strings.IndexByte(path, '/')+1:], "=")
	module, _, _ := strings.Cut(path, ":")
	for {
		got := s.send(replica, "Bearer "+s.token, "GET", "/restconf/data/"+path+"?content=config", "")
		var message map[string][]map[string]any
		if err := json.Unmarshal([]byte(got.body), &message); err != nil || got.code != 200 {
			s.Errorf("GET %s: %d %s: %v", path, got.code, got.body, err)
			return false
		}
		entry := message[module+":"+list][0]
		count, err := strconv.Atoi(fmt.Sprint(entry["description"]))
		if err != nil {
			s.Errorf("%s: %v", path, err)
			return false
		}
		entry["description"] = strconv.Itoa(count + 1)
		body, err := json.Marshal(message)
		if err != nil {
			s.Error(err)
			return false
		}
		method := []string{http.MethodPut, http.MethodPatch}[rand.IntN(2)]
		switch done := s.send(replica, "Bearer "+s.token, method, "/restconf/data/"+path, string(body), "If-Match", got.head.Get("ETag")); done.code {
		case http.StatusNoContent:
			return true
		case http.StatusPreconditionFailed, http.StatusConflict:
			s.conflicts.Add(1)
		default:
			s.Errorf("%s %s: %d %s", method, path, done.code, done.body)
			return false
		}
	}
}

// kubectlIncrements counts up with the version of the object that was read.
func (s *served) kubectlIncrements(c counter) bool {
	for {
		o := c.object.DeepCopyObject().(client.Object)
		if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			s.Error(err)
			return false
		}
		count, err := strconv.Atoi(o.GetAnnotations()[mapping.AnnotationDescription])
		if err != nil {
			s.Error(err)
			return false
		}
		annotations := maps.Clone(o.GetAnnotations())
		annotations[mapping.AnnotationDescription] = strconv.Itoa(count + 1)
		o.SetAnnotations(annotations)
		switch err := s.client.Update(s.Context(), o); {
		case err == nil:
			return true
		case apierrors.IsConflict(err):
			s.conflicts.Add(1)
		default:
			s.Error(err)
			return false
		}
	}
}

// label writes a label by a patch without a version.
func (s *served) label(c counter, n int) bool {
	o := c.object.DeepCopyObject().(client.Object)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"patched":"%d"}}}`, n)
	if err := s.client.Patch(context.WithoutCancel(s.Context()), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Error(err)
		return false
	}
	s.labels.Store(keyOfCounter(c), strconv.Itoa(n))
	return true
}

func (s *served) lastLabel(c counter) string {
	label, _ := s.labels.Load(keyOfCounter(c))
	text, _ := label.(string)
	return text
}
