// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"context"
	"os"
	"testing"
	"time"

	"coelan.io/coelan/internal/policystream/streamtest"
)

// A smaller cluster than that of the bench.
func TestLoad(t *testing.T) {
	l := streamtest.Load{Nodes: 50, PodsPerNode: 10, Namespaces: 50}
	if os.Getenv("COELAN_LOAD") != "" {
		l = streamtest.DefaultLoad
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.Connect.Agents != l.Nodes || r.Connect.Items < l.Nodes*l.PodsPerNode {
		t.Errorf("connect: %+v", r.Connect)
	}
	if r.Change.Agents != l.Nodes || r.Change.Items != l.Nodes {
		t.Errorf("one rule has changed: %+v", r.Change)
	}
	if r.Pod.Agents == 0 || r.Pod.Agents > 10 {
		t.Errorf("a pod has changed that 10 nodes are to know: %+v", r.Pod)
	}
	if r.Reconnect.Agents != l.Nodes || r.Reconnect.Items != 0 {
		t.Errorf("nothing is new: %+v", r.Reconnect)
	}
}
