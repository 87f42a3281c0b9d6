# docs: what people read. README.md there is the list of pages; all are installed under share/doc/zug/docs.
nobase_dist_doc_DATA += \
  docs/README.md \
  docs/concepts/layouts.md \
  docs/concepts/memory.md \
  docs/concepts/plan.md \
  docs/concepts/proofs.md \
  docs/concepts/same-losses.md \
  docs/developers/README.md \
  docs/developers/adding-an-operation.md \
  docs/developers/build.md \
  docs/developers/rooms.md \
  docs/gallery.md \
  docs/guides/clusters.md \
  docs/guides/data.md \
  docs/guides/evaluation.md \
  docs/guides/generation.md \
  docs/guides/hugging-face.md \
  docs/guides/long-runs.md \
  docs/guides/performance.md \
  docs/guides/recipes.md \
  docs/guides/serving.md \
  docs/guides/training.md \
  docs/images/losses.svg \
  docs/images/timeline.svg \
  docs/reference/README.md \
  docs/reference/zc.md \
  docs/reference/zckpt.md \
  docs/reference/zdata.md \
  docs/reference/zkeep.md \
  docs/reference/zlog.md \
  docs/reference/zplan.md \
  docs/reference/zrun.md \
  docs/status.md \
  docs/tutorials/1-train-and-generate.md \
  docs/tutorials/2-two-layouts-one-loss.md \
  docs/tutorials/3-plan-70b-without-a-gpu.md \
  docs/tutorials/4-write-a-model.md
