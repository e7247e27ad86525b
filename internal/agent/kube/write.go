// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/kuryr"
	"coelan.io/coelan/internal/names"
)

// callTimeout bounds a call if its context has no deadline.
const callTimeout = 5 * time.Second

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// Pod asks for one pod, slim. Its error and those below are the API's own (apierrors).
func (c *Client) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	pod, err := c.api.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return slimPod(pod), nil
}

// Namespace asks for one namespace, slim.
func (c *Client) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ns, err := c.api.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return slimNamespace(ns), nil
}

// Definition asks for one NetworkAttachmentDefinition.
func (c *Client) Definition(ctx context.Context, namespace, name string) (*Definition, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	d := &Definition{}
	return d, c.definitions.Get().Namespace(namespace).Resource(Definitions).Name(name).Do(ctx).Into(d)
}

// KuryrPort asks for what Kuryr has noted of a pod. The kind need not be known.
func (c *Client) KuryrPort(ctx context.Context, namespace, name string) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	get := c.coelan.Get().AbsPath("/apis", kuryr.Group, kuryr.Version, "namespaces", namespace, kuryr.Ports, name)
	return get.Do(ctx).Raw()
}

// Blocks asks for all blocks of a Network.
func (c *Client) Blocks(ctx context.Context, network string) ([]*v1alpha1.AddressBlock, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelNetwork: names.LabelValue(network)})
	list := &v1alpha1.AddressBlockList{}
	err := c.coelan.Get().Resource(Blocks).Param("labelSelector", selector.String()).Do(ctx).Into(list)
	if err != nil {
		return nil, err
	}
	var blocks []*v1alpha1.AddressBlock
	for i := range list.Items {
		if list.Items[i].Spec.Network == network {
			blocks = append(blocks, &list.Items[i])
		}
	}
	return blocks, nil
}

// CreateBlock creates a block; the error says apierrors.IsAlreadyExists if another node was first.
func (c *Client) CreateBlock(ctx context.Context, b *v1alpha1.AddressBlock) (*v1alpha1.AddressBlock, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	made := &v1alpha1.AddressBlock{}
	return made, c.coelan.Post().Resource(Blocks).Body(b).Do(ctx).Into(made)
}

// Block asks for one block.
func (c *Client) Block(ctx context.Context, name string) (*v1alpha1.AddressBlock, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	b := &v1alpha1.AddressBlock{}
	return b, c.coelan.Get().Resource(Blocks).Name(name).Do(ctx).Into(b)
}

// DeleteBlock deletes the block with that UID; that it is gone, or was recreated, is no error.
func (c *Client) DeleteBlock(ctx context.Context, name string, uid types.UID) error {
	return c.delete(ctx, "", Blocks, name, uid)
}

// PatchBlockStatus merges a part of a status into a block's.
func (c *Client) PatchBlockStatus(ctx context.Context, name string, status any) error {
	return c.patchStatus(ctx, "", Blocks, name, status)
}

// ClaimBlock writes the node that is active for a block's address, if the block has that resource
// version.
func (c *Client) ClaimBlock(ctx context.Context, name, resourceVersion, node string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"status":   map[string]any{"activeNode": node},
	})
	if err != nil {
		return fmt.Errorf("status of %s %s: %w", Blocks, name, err)
	}
	return c.coelan.Patch(types.MergePatchType).Resource(Blocks).Name(name).
		SubResource("status").Body(patch).Do(ctx).Error()
}

// Port asks for one Port.
func (c *Client) Port(ctx context.Context, namespace, name string) (*v1alpha1.Port, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	p := &v1alpha1.Port{}
	return p, c.coelan.Get().Namespace(namespace).Resource(Ports).Name(name).Do(ctx).Into(p)
}

// madeHere selects the Ports that this agent has made.
func (c *Client) madeHere() labels.Selector {
	return labels.SelectorFromSet(labels.Set{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByAgent, v1alpha1.LabelNode: names.LabelValue(c.node),
	})
}

// NodePorts asks for the Ports that this agent has made for the pods of its node.
func (c *Client) NodePorts(ctx context.Context) ([]*v1alpha1.Port, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list := &v1alpha1.PortList{}
	err := c.coelan.Get().Resource(Ports).Param("labelSelector", c.madeHere().String()).Do(ctx).Into(list)
	if err != nil {
		return nil, err
	}
	var ports []*v1alpha1.Port
	for i := range list.Items {
		ports = append(ports, &list.Items[i])
	}
	return ports, nil
}

// CreatePort creates a Port, without its status.
func (c *Client) CreatePort(ctx context.Context, p *v1alpha1.Port) (*v1alpha1.Port, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	made := &v1alpha1.Port{}
	return made, c.coelan.Post().Namespace(p.Namespace).Resource(Ports).Body(p).Do(ctx).Into(made)
}

// DeletePort deletes the Port with that UID; that it is gone, or was recreated, is no error.
func (c *Client) DeletePort(ctx context.Context, namespace, name string, uid types.UID) error {
	return c.delete(ctx, namespace, Ports, name, uid)
}

// PatchPortStatus merges a part of a status into a Port's.
func (c *Client) PatchPortStatus(ctx context.Context, namespace, name string, status any) error {
	return c.patchStatus(ctx, namespace, Ports, name, status)
}

// AnnotatePod sets annotations of the pod with that UID; that it is gone, or was made
// anew, is no error.
func (c *Client) AnnotatePod(ctx context.Context, namespace, name string, uid types.UID,
	annotations map[string]string,
) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("annotations of pod %s/%s: %w", namespace, name, err)
	}
	// By way of the status, which needs no right to change what the pod runs.
	_, err = c.api.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{},
		"status")
	return ignoreGone(err)
}

// AnnotateNode sets annotations of a node; that it is gone is no error.
func (c *Client) AnnotateNode(ctx context.Context, name string, annotations map[string]string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("annotations of node %s: %w", name, err)
	}
	// By way of the status, which needs no right to change the node's spec.
	_, err = c.api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignoreGone(err)
}

func (c *Client) delete(ctx context.Context, namespace, resource, name string, uid types.UID) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	options := metav1.NewPreconditionDeleteOptions(string(uid))
	return ignoreGone(c.coelan.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).
		Body(options).Do(ctx).Error())
}

func (c *Client) patchStatus(ctx context.Context, namespace, resource, name string, status any) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("status of %s %s: %w", resource, name, err)
	}
	return c.coelan.Patch(types.MergePatchType).NamespaceIfScoped(namespace,
		namespace != "").Resource(resource).Name(name).
		SubResource("status").Body(patch).Do(ctx).Error()
}

// ignoreGone takes for done what concerns an object that is not there any more; a conflict is that
// of the UID.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
