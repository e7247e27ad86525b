// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// unbound is the status of a Port that no interface is there for.
func unbound() map[string]any {
	return map[string]any{"phase": v1alpha1.PortReady, "node": nil, "boundTime": nil, "lastError": nil}
}

// unplugged is the status of a user's Port after its interface on this node is gone. An address
// that its machine has by DHCP is shown for as long as a node lets it be used.
func (b *Binder) unplugged(o *v1alpha1.Port) map[string]any {
	status := unbound()
	if n, _ := b.Flows.Network(o.Spec.Network); n.Leased {
		status["addresses"] = []string(nil)
	}
	return status
}

// tell writes a part of a Port's status, unless that is what it says already.
func (b *Binder) tell(ctx context.Context, o *v1alpha1.Port, status map[string]any) error {
	key := o.Namespace + "/" + o.Name
	if b.says(o.Status, status) {
		b.mu.Lock()
		delete(b.told, key)
		b.mu.Unlock()
		return nil
	}
	version := o.ResourceVersion + fmt.Sprint(status)
	b.mu.Lock()
	again := b.told[key] == version
	b.mu.Unlock()
	if again {
		return nil // the view has not caught up
	}
	err := b.API.PatchPortStatus(ctx, o.Namespace, o.Name, status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of port %s: %w", key, err)
	}
	b.mu.Lock()
	b.told[key] = version
	b.mu.Unlock()
	return nil
}

// says compares the parts of a status that the Binder writes. What another node complains of is
// that one's to take back.
func (b *Binder) says(have v1alpha1.PortStatus, want map[string]any) bool {
	for field, value := range want {
		same := true
		switch field {
		case "phase":
			same = have.Phase == value
		case "mac":
			same = have.MAC == value
		case "addresses":
			same = slices.Equal(have.Addresses, value.([]string))
		case "node":
			same = value == nil && have.Node == "" || value == have.Node
		case "lastError":
			others := strings.HasPrefix(have.LastError, v1alpha1.ReasonBoundElsewhere+":") &&
				!b.complained(have.LastError)
			same = value == nil && (have.LastError == "" || others) || value == have.LastError
		case "boundTime":
			at, bound := value.(metav1.Time)
			same = have.BoundTime == nil && !bound || have.BoundTime != nil && bound &&
				have.BoundTime.Time.Equal(at.Time)
		}
		if !same {
			return false
		}
	}
	return true
}

// warn tells the Port's user once of each problem.
func (b *Binder) warn(o *v1alpha1.Port, reason, message string) {
	b.mu.Lock()
	key, text := "event "+string(o.UID), reason+message
	again := b.told[key] == text
	b.told[key] = text
	b.mu.Unlock()
	if !again {
		b.Events.PortWarning(o.Namespace, o.Name, string(o.UID), reason, message)
	}
}
