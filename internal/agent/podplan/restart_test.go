// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/podnets"
	"coelan.io/coelan/internal/wellknown"
)

func TestWithoutTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		known := w.pod("red", "known", nil)
		w.api.SetAway(true)
		list, err := w.Plan(t.Context(), known)
		if err != nil || list[0].NetworkName != "red" {
			t.Errorf("a pod that is remembered: %+v, %v", list, err)
		}
		ask := asks("red", "new", "uid-new")
		if list, err = w.Plan(t.Context(), ask); err != nil || list[0].NetworkName != "red" {
			t.Errorf("a pod of a namespace that is remembered: %+v, %v", list, err)
		}
		ask.PodNamespace = "nowhere"
		if list, err = w.Plan(t.Context(), ask); err != nil || list[0].NetworkName != "default" {
			t.Errorf("a pod of a namespace of which nothing is remembered: %+v, %v", list, err)
		}
	})
}

// restarted is the Planner of an agent that remembers what w knew before change, and
// has heard nothing yet.
func (w *world) restarted(change func()) *Planner {
	w.t.Helper()
	if err := w.View.Save(); err != nil {
		w.t.Fatal(err)
	}
	w.hide()
	change()
	v, err := apicache.New(w.Log, w.Store)
	if err != nil {
		w.t.Fatal(err)
	}
	w.follow(v, w.Store)
	o := w.Options
	o.InEffect = w.source.InEffect
	o.View, o.Blocks = v, blockipam.New(w.Log, "n1", w.api, v, w.Store)
	return New(o)
}

// What is remembered does not decide about Networks while the API server can tell: "shop" has
// become a tenant's.
func TestAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		shop := w.pod("shop", "p", nil)
		p := w.restarted(func() {
			w.api.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"tenant": "blue"}}},
				network("blue", 6, "red", v1alpha1.NetworkSpec{Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "blue"), Subnets: subnets("10.5.0.0/24")}))
		})
		_, err := p.Plan(t.Context(), shop)
		wantPlanError(t, err, "NetworkNotReady: not heard yet")
		var e *cni.PlanError
		if !errors.As(err, &e) || !e.Retry {
			t.Errorf("it is not to be tried again: %v", err)
		}

		u := p.View.Updates(w.refresh)
		planned := make(chan string, 1)
		go func() {
			list, err := p.Plan(t.Context(), shop)
			if err != nil {
				planned <- err.Error()
				return
			}
			planned <- list[0].NetworkName
		}()
		synctest.Wait()
		w.hide = w.api.Show(u, p.View.SetPods)
		if got := <-planned; got != "blue" {
			t.Errorf("planned on %s", got)
		}
	})
}

func TestAfterARestartWithoutTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		asks := map[string]cni.Request{"default": w.pod("shop", "p", nil), "red": w.pod("red", "q", nil)}
		p := w.restarted(func() { w.api.SetAway(true) })
		for want, ask := range asks {
			began := time.Now()
			list, err := p.Plan(t.Context(), ask)
			if err != nil || list[0].NetworkName != want {
				t.Errorf("%s: %+v, %v", want, list, err)
			}
			if waited := time.Since(began); waited > 2*time.Second {
				t.Errorf("waited %v", waited)
			}
		}
		// It was there for a moment, and did not come to this.
		u := p.View.Updates(w.refresh)
		u.Routers(kube.Whole[*v1alpha1.Router](nil))
		_, err := p.Plan(t.Context(), asks["default"])
		wantPlanError(t, err, "NetworkNotReady: not heard yet")
		// A cluster without the kind has no Networks.
		u.Absent(kube.Networks)
		u.Namespaces(kube.Whole([]*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}))
		began := time.Now()
		if list, err := p.Plan(t.Context(), asks["default"]); err != nil || list[0].NetworkName != "default" || time.Since(began) > 0 {
			t.Errorf("without the kind: %+v, %v after %v", list, err, time.Since(began))
		}
	})
}

func TestPodsThatTheAPIDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config.MapFlat)
		ask := asks("red", "gone", "0c1ff3ee-0000-0000-0000-000000000000")
		_, err := w.Plan(t.Context(), ask)
		wantPlanError(t, err, "Invalid: pod red/gone with UID")
		ask.PodUID = "0123456789abcdef0123456789abcdef"
		if list, err := w.Plan(t.Context(), ask); err != nil || list[0].NetworkName != "red" {
			t.Errorf("a static pod without a mirror: %+v, %v", list, err)
		}
		w.api.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "mirror", UID: "other", Annotations: map[string]string{
				wellknown.AnnotationConfigHash: ask.PodUID, podnets.AnnotationNetworks: "lan",
			},
		}})
		ask.PodNamespace, ask.PodName = "shop", "mirror"
		if list, err := w.Plan(t.Context(), ask); err != nil || len(list) != 2 {
			t.Errorf("a static pod by its mirror: %+v, %v", list, err)
		}
	})
}
