// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/announce/keyring"
)

// AddMembershipKey publishes the key that agents need to agree on the node that answers for an
// address.
func (a *API) AddMembershipKey() {
	key := bytes.Repeat([]byte{7}, 32)
	a.set(secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "coelan-system", Name: keyring.Secret},
		Data:       map[string][]byte{keyring.Keys: keyring.Format([][]byte{key})},
	})
}
