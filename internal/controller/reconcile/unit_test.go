// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"coelan.io/coelan/api/v1alpha1"
)

func TestEnumerate(t *testing.T) {
	var users []string
	for i := range 9 {
		users = append(users, fmt.Sprintf("pod a/%d", 8-i))
	}
	for _, c := range []struct {
		users []string
		want  string
	}{
		{users[:1], "pod a/8"},
		{users[:5], "pod a/4, pod a/5, pod a/6, pod a/7, pod a/8"},
		{append(users[:2:2], users...), "pod a/0, pod a/1, pod a/2, pod a/3, pod a/4 and 4 more"},
	} {
		if got := enumerate(c.users); got != c.want {
			t.Errorf("enumerate = %q, want %q", got, c.want)
		}
	}
}

// What was written is known before a watch tells of it, and forgotten when it does, or when the
// object is gone.
func TestMemory(t *testing.T) {
	network := func(name, version string, id int32) *v1alpha1.Network {
		return &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version},
			Status:     v1alpha1.NetworkStatus{ID: id},
		}
	}
	there := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(network("created", "", 9)).Build()
	a := &Access{Client: there, Live: there}
	var m WriteCache[*v1alpha1.Network]
	m.Keep(network("written", "10", 7))
	m.Keep(network("seen", "10", 8))
	m.Keep(network("created", "10", 9))
	m.Keep(network("deleted", "10", 10))
	ids := func(list []*v1alpha1.Network) map[string]int32 {
		got, err := m.Merge(t.Context(), a, list)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]int32{}
		for _, n := range got {
			ids[n.Name] = n.Status.ID
		}
		return ids
	}
	got := ids([]*v1alpha1.Network{network("written", "9", 0), network("seen", "11", 5), network("other", "3", 4)})
	want := map[string]int32{"written": 7, "seen": 5, "other": 4, "created": 9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with what is known (-want +got):\n%s", diff)
	}
	got = ids([]*v1alpha1.Network{network("written", "10", 7), network("seen", "9", 1), network("created", "999", 3)})
	want = map[string]int32{"written": 7, "seen": 1, "created": 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}

// A failure of one does not affect the others, and losing a race with another writer is no failure.
func TestEach(t *testing.T) {
	done := make([]bool, 100)
	broken := fmt.Errorf("broken")
	list := make([]int, len(done))
	for i := range list {
		list[i] = i
	}
	err := Each(t.Context(), list, func(_ context.Context, i int) error {
		done[i] = true
		if i == 50 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	for i, d := range done {
		if !d {
			t.Errorf("%d was left out", i)
		}
	}
}
