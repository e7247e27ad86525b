// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller"
)

// testLeader kills the leader of two: the other one works within 15 s. One that ends of itself is
// followed at once.
func testLeader(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	first := w.spawn(api)
	holder := w.holder("")
	second := w.spawn(api)
	w.create(overlay("before", "", "10.90.0.0/16"))
	w.ready("before")
	if w.holder("") != holder {
		t.Fatal("the second one leads")
	}

	killed := time.Now()
	first(syscall.SIGKILL)
	w.create(overlay("after", "", "10.91.0.0/16"))
	w.within(15*time.Second-time.Since(killed), func() string {
		n := overlay("after", "")
		return want(w.get(n) && n.Status.ID != 0, "nobody has given it a number")
	})
	t.Logf("a Network has effect %v after the leader was killed", time.Since(killed).Round(time.Millisecond))
	holder = w.holder(holder)
	before, after := w.ready("before"), w.ready("after")
	if before.Status.VNI == after.Status.VNI {
		t.Errorf("both have VNI %d", after.Status.VNI)
	}

	third := w.spawn(api)
	w.until(func() string { return want(w.holder("") == holder, "another leader") })
	ended := time.Now()
	second(syscall.SIGTERM)
	w.create(overlay("last", "", "10.92.0.0/16"))
	w.ready("last")
	t.Logf("a Network has effect %v after the leader was asked to end", time.Since(ended).Round(time.Millisecond))
	third(syscall.SIGTERM)
}

// holder waits until another replica than before leads.
func (w *world) holder(before string) (now string) {
	w.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: controller.LeaseName}}
	w.until(func() string {
		if w.get(lease) && lease.Spec.HolderIdentity != nil {
			now = *lease.Spec.HolderIdentity
		}
		return want(now != "" && now != before, "nobody leads")
	})
	return now
}

// spawn starts a controller as a process of its own, that a signal ends.
func (w *world) spawn(api *apitest.API) (end func(os.Signal)) {
	w.Helper()
	log, err := os.CreateTemp(w.TempDir(), "controller")
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", asController, api.Kubeconfig))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	ended := false
	end = func(signal os.Signal) {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(signal) // it may have ended
		_ = cmd.Wait()
		if w.Failed() {
			text, _ := os.ReadFile(log.Name())
			w.Logf("the controller's log:\n%s", text)
		}
		log.Close()
	}
	w.Cleanup(func() { end(os.Kill) })
	return end
}
