// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// controllerGrant is the controller's message. No agent may write it.
const controllerGrant = "no node hands it out"

// GrantMessage is the message of the condition Granted, where it is true: that the named node, or
// the controller without one, grants the address. An agent may write its own node's name only; see
// the admission policy of blocks' status.
func GrantMessage(node string) string {
	if node == "" {
		return controllerGrant
	}
	return grantedBy(node) + "which has the block, does not hand it out"
}

// RefusalMessage is the message of the condition Granted, where it is false, of the node
// that has the block.
func RefusalMessage(node, reason string) string {
	return grantedBy(node) + "which has the block: " + reason
}

const answeredByNode = "node "

func grantedBy(node string) string { return answeredByNode + node + ", " }

// Answer is the condition Granted of a claim, if its writer may answer: the controller, or the node
// that hands out the block around the address; without such a node, "", the controller alone. What
// a third node says does not count, be it a grant or a refusal. Agents of earlier releases do not
// name themselves when they refuse.
func Answer(claim *v1alpha1.AddressBlock, node string) *metav1.Condition {
	answer := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionGranted)
	if answer == nil || answer.Message == controllerGrant {
		return answer
	}
	unnamed := answer.Status == metav1.ConditionFalse && !strings.HasPrefix(answer.Message, answeredByNode)
	if node != "" && (unnamed || strings.HasPrefix(answer.Message, grantedBy(node))) {
		return answer
	}
	return nil
}

// ClaimStands reports whether a single address belongs to its claim, given the block of several
// addresses around it; nil if there is none. The name of a claim makes it the only one for the
// address, so only another node that hands out the block may object: a claim stands if that node or
// the controller has granted it, or if it is older than the block. Times of creation are in
// seconds, so of one in the same second the node decides.
func ClaimStands(claim, around *v1alpha1.AddressBlock) bool {
	if around == nil || around.Spec.Node == "" || around.Spec.Node == claim.Spec.Node {
		return true
	}
	answer := Answer(claim, around.Spec.Node)
	return answer != nil && answer.Status == metav1.ConditionTrue ||
		claim.CreationTimestamp.Before(&around.CreationTimestamp)
}
